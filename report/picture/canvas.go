package picture

import (
	"bytes"
	"fmt"
	"html"
	"io"
	"strings"
)

// point is a place on a canvas, from its upper left corner.
type point struct{ x, y float64 }

// stroke is the style of a line.
type stroke struct {
	colour  string // as #rrggbb
	width   float64
	dash    []float64
	opacity float64 // 0 for 1
}

// label is a short text on a canvas.
type label struct {
	at     point
	text   string
	size   float64
	bold   bool
	anchor anchor
	up     bool // rotated to read upwards
	colour string
}

type anchor int

const (
	start anchor = iota
	middle
	end
)

// canvas is a surface for a figure.
type canvas interface {
	line(points []point, s stroke)
	area(points []point, colour string, opacity float64)
	write(l label)
	finish(out io.Writer) error
}

// svgCanvas draws SVG.
type svgCanvas struct {
	width, height float64
	body          strings.Builder
}

func path(points []point) string {
	var b strings.Builder
	for k, p := range points {
		fmt.Fprintf(&b, "%c%.2f,%.2f", "ML"[min(k, 1)], p.x, p.y)
	}
	return b.String()
}

func (c *svgCanvas) line(points []point, s stroke) {
	fmt.Fprintf(&c.body, `<path d="%s" fill="none" stroke="%s" stroke-width="%g" stroke-linejoin="round"`, path(points), s.colour, s.width)
	if len(s.dash) > 0 {
		fmt.Fprintf(&c.body, ` stroke-dasharray="%s"`, strings.Trim(fmt.Sprint(s.dash), "[]"))
	}
	if s.opacity > 0 {
		fmt.Fprintf(&c.body, ` stroke-opacity="%g"`, s.opacity)
	}
	c.body.WriteString("/>\n")
}

func (c *svgCanvas) area(points []point, colour string, opacity float64) {
	fmt.Fprintf(&c.body, `<path d="%sZ" fill="%s" fill-opacity="%g"/>`+"\n", path(points), colour, opacity)
}

func (c *svgCanvas) write(l label) {
	fmt.Fprintf(&c.body, `<text x="%.2f" y="%.2f" font-size="%g" fill="%s"`, l.at.x, l.at.y, l.size, l.colour)
	if l.anchor != start {
		fmt.Fprintf(&c.body, ` text-anchor="%s"`, []string{"start", "middle", "end"}[l.anchor])
	}
	if l.bold {
		c.body.WriteString(` font-weight="bold"`)
	}
	if l.up {
		fmt.Fprintf(&c.body, ` transform="rotate(-90 %.2f %.2f)"`, l.at.x, l.at.y)
	}
	fmt.Fprintf(&c.body, ">%s</text>\n", html.EscapeString(l.text))
}

func (c *svgCanvas) finish(out io.Writer) error {
	_, err := fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" width="%g" height="%g" role="img" font-family="Helvetica, Arial, sans-serif">
<rect width="%g" height="%g" fill="#ffffff"/>
%s</svg>
`, c.width, c.height, c.width, c.height, c.width, c.height, c.body.String())
	return err
}

// pdfCanvas draws one page of PDF 1.4. Its fonts are Helvetica and Helvetica-Bold, which
// every reader has.
type pdfCanvas struct {
	width, height float64
	body          bytes.Buffer
	opacities     []float64 // of graphics states, by number
}

func rgb(colour string) string {
	var r, g, b int
	_, _ = fmt.Sscanf(colour, "#%02x%02x%02x", &r, &g, &b) // they are constants of this package
	return fmt.Sprintf("%.3f %.3f %.3f", float64(r)/255, float64(g)/255, float64(b)/255)
}

// opacity sets the opacity of later drawing.
func (c *pdfCanvas) opacity(x float64) {
	for k, known := range c.opacities {
		if known == x {
			fmt.Fprintf(&c.body, "/G%d gs\n", k)
			return
		}
	}
	c.opacities = append(c.opacities, x)
	fmt.Fprintf(&c.body, "/G%d gs\n", len(c.opacities)-1)
}

func (c *pdfCanvas) path(points []point) {
	for k, p := range points {
		fmt.Fprintf(&c.body, "%.2f %.2f %c\n", p.x, c.height-p.y, "ml"[min(k, 1)])
	}
}

func (c *pdfCanvas) line(points []point, s stroke) {
	opacity := s.opacity
	if opacity == 0 {
		opacity = 1
	}
	c.opacity(opacity)
	fmt.Fprintf(&c.body, "%s RG %g w 1 j [%s] 0 d\n", rgb(s.colour), s.width, strings.Trim(fmt.Sprint(s.dash), "[]"))
	c.path(points)
	c.body.WriteString("S\n")
}

func (c *pdfCanvas) area(points []point, colour string, opacity float64) {
	c.opacity(opacity)
	fmt.Fprintf(&c.body, "%s rg\n", rgb(colour))
	c.path(points)
	c.body.WriteString("h f\n")
}

func (c *pdfCanvas) write(l label) {
	c.opacity(1)
	back := []float64{0, .5, 1}[l.anchor] * textWidth(l.text, l.size, l.bold)
	font := "F0"
	if l.bold {
		font = "F1"
	}
	place := fmt.Sprintf("1 0 0 1 %.2f %.2f", l.at.x-back, c.height-l.at.y)
	if l.up {
		place = fmt.Sprintf("0 1 -1 0 %.2f %.2f", l.at.x, c.height-l.at.y-back)
	}
	fmt.Fprintf(&c.body, "BT /%s %g Tf %s rg %s Tm (%s) Tj ET\n", font, l.size, rgb(l.colour), place, winAnsi(l.text))
}

// winAnsi encodes a text for a string of PDF. Characters that the encoding
// lacks become question marks.
func winAnsi(text string) string {
	further := map[rune]byte{'–': 0x96, '—': 0x97, '’': 0x92, '‘': 0x91, '“': 0x93, '”': 0x94, '…': 0x85, '•': 0x95, '€': 0x80, '−': '-'}
	var b strings.Builder
	for _, r := range text {
		code, known := further[r]
		switch {
		case known:
		case r >= ' ' && r < 0x7f, r >= 0xa0 && r <= 0xff:
			code = byte(r)
		default:
			code = '?'
		}
		switch {
		case code == '(' || code == ')' || code == '\\':
			b.WriteByte('\\')
			b.WriteByte(code)
		case code >= 0x80:
			fmt.Fprintf(&b, "\\%03o", code)
		default:
			b.WriteByte(code)
		}
	}
	return b.String()
}

// helvetica has the widths of the characters from space to ~, in thousandths of the size.
var helvetica = [...]int{
	278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556, 556, 556, 556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556,
	1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778, 667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556,
	333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556, 556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584,
}

// textWidth is the width of a text. Bold letters are some 7 % wider.
func textWidth(text string, size float64, bold bool) float64 {
	sum := 0
	for _, r := range text {
		if k := int(r) - ' '; k >= 0 && k < len(helvetica) {
			sum += helvetica[k]
		} else {
			sum += 556
		}
	}
	width := float64(sum) / 1000 * size
	if bold {
		width *= 1.07
	}
	return width
}

func (c *pdfCanvas) finish(out io.Writer) error {
	var states strings.Builder
	for k, x := range c.opacities {
		fmt.Fprintf(&states, "/G%d << /CA %g /ca %g >> ", k, x, x)
	}
	font := func(name string) string {
		return fmt.Sprintf("<< /Type /Font /Subtype /Type1 /BaseFont /%s /Encoding /WinAnsiEncoding >>", name)
	}
	objects := []string{
		"<< /Type /Catalog /Pages 2 0 R >>",
		"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
		fmt.Sprintf("<< /Type /Page /Parent 2 0 R /MediaBox [0 0 %g %g] /Contents 4 0 R /Resources << /Font << /F0 5 0 R /F1 6 0 R >> /ExtGState << %s>> >> >>",
			c.width, c.height, states.String()),
		fmt.Sprintf("<< /Length %d >>\nstream\n%sendstream", c.body.Len(), c.body.String()),
		font("Helvetica"), font("Helvetica-Bold"),
	}
	var b bytes.Buffer
	b.WriteString("%PDF-1.4\n")
	places := make([]int, len(objects))
	for k, object := range objects {
		places[k] = b.Len()
		fmt.Fprintf(&b, "%d 0 obj\n%s\nendobj\n", k+1, object)
	}
	table := b.Len()
	fmt.Fprintf(&b, "xref\n0 %d\n0000000000 65535 f \n", len(objects)+1)
	for _, place := range places {
		fmt.Fprintf(&b, "%010d 00000 n \n", place)
	}
	fmt.Fprintf(&b, "trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n", len(objects)+1, table)
	_, err := out.Write(b.Bytes())
	return err
}
