package torchft

import "fmt"

// String shows what the machine waits for.
func (m *Machine) String() string {
	text := fmt.Sprintf("phase %d at outer step %d", m.phase, m.outerSteps)
	for _, w := range m.members {
		text += fmt.Sprintf("; %s work %d step %d contributes %t heard at %d", w.replica[18:], w.work, w.step, w.contributes, w.beat)
	}
	return text
}
