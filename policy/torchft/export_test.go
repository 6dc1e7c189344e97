package torchft

import "fmt"

// String shows what the machine waits for.
func (m *Machine) String() string {
	text := fmt.Sprintf("%d attempts at outer step %d", len(m.attempts), m.outerSteps)
	for _, w := range m.members {
		text += fmt.Sprintf("; %s work %d step %d contributes %t heard at %d", w.replica[18:], w.ranks[0].work, w.step, w.contributes(), w.beat)
	}
	return text
}
