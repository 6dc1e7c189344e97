package charlm

import (
	"fmt"
	"math"
)

// Sample continues the prompt by n bytes, which it returns. Each byte is drawn
// with the model's probabilities, raised to the power 1/temperature. At 0 it is
// the likeliest byte. The same seed draws the same bytes.
func (c Config) Sample(parameters []float32, prompt []byte, n int, temperature float64, seed uint64) ([]byte, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if want := c.Parameters(); len(parameters) != want {
		return nil, fmt.Errorf("%d parameters were given, but the model has %d", len(parameters), want)
	}
	if n < 0 {
		return nil, fmt.Errorf("the length is %d: it must not be negative", n)
	}
	if !(temperature >= 0 && temperature <= math.MaxFloat32) {
		return nil, fmt.Errorf("the temperature is %v: it must be finite, and must not be negative", temperature)
	}
	text := prompt[:len(prompt):len(prompt)]
	if len(text) == 0 {
		text = []byte{'\n'} // a prediction needs at least one byte
	}
	before := len(text)
	w, net := weightsOf(c, parameters), newNetwork(c, 1, false)
	src := (&task{seed: seed}).stream(0, 0, 0)
	for range n {
		window := text[max(0, len(text)-c.Context):]
		net.forward(w, window, len(window))
		logits := net.predictions[(len(window)-1)*vocabulary:][:vocabulary]
		next, ok := draw(logits, float32(temperature), float32(src.Uint64()>>40)*0x1p-24)
		if !ok {
			return nil, fmt.Errorf("after %d bytes of text, the model's predictions are not finite, because its training diverged; train the model with a lower learning rate", len(text)-before)
		}
		text = append(text, next)
	}
	return text[before:], nil
}

// draw returns the byte that chance, from 0 to 1, selects, and overwrites the
// logits.
func draw(logits []float32, temperature, chance float32) (next byte, ok bool) {
	likeliest := 0
	for i, l := range logits {
		if l != l || math.IsInf(float64(l), 0) {
			return 0, false
		}
		if l > logits[likeliest] {
			likeliest = i
		}
	}
	if temperature == 0 {
		return byte(likeliest), true
	}
	top := logits[likeliest]
	for i := range logits {
		logits[i] = (logits[i] - top) / temperature
	}
	softmax(logits)
	for i, p := range logits {
		if chance -= p; chance < 0 {
			return byte(i), true
		}
	}
	return byte(likeliest), true // rounding left chance over
}
