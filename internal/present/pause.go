package present

import (
	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
)

// Pause describes what became of a pause.
func Pause(o *drawgate.PauseOutcome) api.PauseAnswer {
	a := api.PauseAnswer{Until: o.Until.UTC(), Kept: o.Kept}
	if o.Kept {
		a.Message = "nothing was changed: this key is already paused for longer, until " + Clock(o.Until) +
			"; to end that pause, use unpause"
	}
	return a
}

// Unpause describes what became of the end of a pause.
func Unpause(o *drawgate.PauseOutcome) (a api.UnpauseAnswer) {
	if o.Kept {
		a.Until = new(o.Until.UTC())
		a.Message = "nothing was changed: the pause of this key ends at another instant, " + Clock(o.Until) +
			"; look at its status again, and name that instant"
	}
	return a
}
