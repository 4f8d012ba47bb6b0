package record

// LimitsInOrder returns the positions of bucket and limit of each limit that a take asks for, in
// the order in which it claims units of them, for stores that decide in a script.
func LimitsInOrder(asks []Ask) (all [][2]int) {
	for _, at := range limitsInOrder(asks) {
		all = append(all, [2]int{at.ask, at.limit})
	}
	return all
}
