package top

import (
	"context"
	"os"
	"sync"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
)

// Reader reads a snapshot. Of buckets it may leave out those without the filter's text. It may be
// called again before it has returned.
type Reader func(ctx context.Context, filter string) *Snapshot

// Run draws snapshots until the user quits, ctx ends, or a signal arrives, which it returns. The
// terminal is then as it was.
func Run(ctx context.Context, v View, read Reader, signals <-chan os.Signal) (got os.Signal, err error) {
	p := tea.NewProgram(&model{ctx: ctx, view: v, read: read}, tea.WithContext(ctx), tea.WithoutSignalHandler())
	ended := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case got = <-signals:
			p.Quit()
		case <-ended:
		}
	})
	_, err = p.Run()
	close(ended)
	wg.Wait()
	return got, err
}

// model is the state of the program. It reads, waits for the interval, and reads again.
type model struct {
	ctx   context.Context //nolint:containedctx // it is that of Run
	view  View
	read  Reader
	shown *Snapshot // nil until there is one
	lost  Lost
	round int    // what an earlier round of reading and waiting brings is outdated
	was   string // the filter before it was edited
}

// Messages of a round.
type (
	readMsg struct {
		round int
		s     *Snapshot
	}
	nextMsg struct{ round int }
)

// Init implements tea.Model.
func (m *model) Init() tea.Cmd { return m.look() }

// look begins another round, which reads now.
func (m *model) look() tea.Cmd {
	m.round++
	return m.reading()
}

func (m *model) reading() tea.Cmd {
	round, filter := m.round, m.view.Filter
	return func() tea.Msg { return readMsg{round, m.read(m.ctx, filter)} }
}

// Update implements tea.Model.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.view.Width, m.view.Height = msg.Width, msg.Height
	case readMsg:
		if msg.round == m.round {
			m.take(msg.s)
			return m, tea.Tick(m.view.Interval, func(time.Time) tea.Msg { return nextMsg{msg.round} })
		}
	case nextMsg:
		if msg.round == m.round && !m.view.Paused {
			return m, m.reading()
		}
	case tea.KeyPressMsg:
		if msg.String() == "ctrl+c" {
			return m, tea.Quit
		}
		if m.view.Editing {
			return m, m.edit(msg)
		}
		return m, m.press(msg.String())
	}
	return m, nil
}

// take shows a snapshot. What was known before stays if there is no answer.
func (m *model) take(s *Snapshot) {
	switch {
	case s.Err == nil:
		m.shown, m.lost = s, Lost{}
	case m.lost.Err == nil:
		m.lost = Lost{s.At, s.Err}
	default:
		m.lost.Err = s.Err
	}
}

// press carries out a key.
func (m *model) press(key string) tea.Cmd {
	switch key {
	case "q":
		return tea.Quit
	case "s":
		m.view.Order = (m.view.Order + 1) % orders
	case "/":
		m.view.Editing, m.was = true, m.view.Filter
	case "esc":
		if m.view.Filter != "" {
			m.view.Filter = ""
			return m.again()
		}
	case "space":
		if m.view.Paused = !m.view.Paused; !m.view.Paused {
			return m.look()
		}
		m.round++
	}
	return nil
}

// edit changes the filter. What is shown is filtered at once, and read when the filter is complete.
func (m *model) edit(key tea.KeyPressMsg) tea.Cmd {
	v := &m.view
	switch key.String() {
	case "enter":
		v.Editing = false
	case "esc":
		v.Editing, v.Filter = false, ""
	case "backspace":
		_, n := utf8.DecodeLastRuneInString(v.Filter)
		v.Filter = v.Filter[:len(v.Filter)-n]
		return nil
	default:
		v.Filter += key.Text
		return nil
	}
	if v.Filter == m.was {
		return nil
	}
	return m.again()
}

// again reads with another filter, unless the display is paused.
func (m *model) again() tea.Cmd {
	if m.view.Paused {
		return nil
	}
	return m.look()
}

// View implements tea.Model.
func (m *model) View() tea.View {
	if m.view.Width == 0 { // the size is not known yet
		return tea.NewView("")
	}
	view := tea.NewView(m.view.Frame(m.shown, m.lost))
	view.AltScreen = true
	return view
}
