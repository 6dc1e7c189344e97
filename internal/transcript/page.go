package transcript

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A Block is a fenced block of a Markdown page. With a second word in its first
// line it is a file of that name, which the reader creates:
//
//	```yaml mine.yaml
//
// With the language console it has commands and their output:
//
//	```console measured
//	$ testbed run mine.yaml
//	record: …
//	```
//
// A command follows "$ ", and continues on the next line after a backslash.
// Without output, the command may print anything. Otherwise the output is
// compared:
//
//   - A line "…" stands for any number of lines, and "…" within a line for any text.
//   - With the word measured the commands play real runs. Every number stands for any
//     number, and every space for any number of spaces.
//   - With the word fails the commands end with an error, which is what they print.
//   - Spaces at the end of a line do not count.
type Block struct {
	Line  int    // number of the line with the fence
	Lang  string // first word of that line
	words []string
	Above string // the paragraph above
	Text  string // with a line feed at the end
}

// Blocks returns the fenced blocks of a page that begin at the margin, in order.
func Blocks(page string) (all []Block, err error) {
	var open *Block
	above, ended := "", false
	for i, line := range strings.Split(page, "\n") {
		info, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && open == nil:
			open = &Block{Line: i + 1, words: strings.Fields(info), Above: above}
			if len(open.words) > 0 {
				open.Lang, open.words = open.words[0], open.words[1:]
			}
		case fence:
			all = append(all, *open)
			open, above = nil, ""
		case open != nil:
			open.Text += line + "\n"
		case line == "":
			ended = true
		case ended:
			above, ended = line, false
		default:
			above += "\n" + line
		}
	}
	if open != nil {
		return nil, fmt.Errorf("line %d: the block has no end", open.Line)
	}
	return all, nil
}

// File is the name of the file in a block, or empty.
func (b Block) File() string {
	if b.Lang == "console" || len(b.words) == 0 {
		return ""
	}
	return b.words[0]
}

// Measured reports whether the block's commands play real runs.
func (b Block) Measured() bool { return b.Lang == "console" && slices.Contains(b.words, "measured") }

// Fails reports whether the block's commands end with an error.
func (b Block) Fails() bool { return b.Lang == "console" && slices.Contains(b.words, "fails") }

// A Command is a command that the reader of a page types.
type Command struct {
	Line int    // its number in the page
	Text string // for a shell
	Want string // the shown output, for Match; empty: any
}

// Commands returns the commands of a block.
func (b Block) Commands() (all []Command, err error) {
	lines := strings.Split(strings.TrimSuffix(b.Text, "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		text, typed := strings.CutPrefix(lines[i], "$ ")
		switch {
		case typed:
			c := Command{Line: b.Line + 1 + i, Text: text}
			for strings.HasSuffix(lines[i], `\`) && i+1 < len(lines) {
				i++
				c.Text += "\n" + lines[i]
			}
			all = append(all, c)
		case len(all) == 0:
			return nil, fmt.Errorf("line %d: the block does not begin with a command after \"$ \"", b.Line)
		default:
			all[len(all)-1].Want += lines[i] + "\n"
		}
	}
	return all, nil
}

// varied matches the variable parts of a page: a number, spaces, and omissions.
var varied = regexp.MustCompile(`[-+]?[0-9][0-9.,]*| +|…`)

// Match compares output with a page. In measured output, numbers may differ.
func Match(got, want string, measured bool) error {
	pattern := `^`
	for line := range strings.SplitSeq(strings.TrimRight(want, "\n"), "\n") {
		if line == "…" {
			pattern += `(?:.*\n)*?`
			continue
		}
		line = strings.TrimRight(line, " ")
		at := 0
		for _, v := range varied.FindAllStringIndex(line, -1) {
			pattern += regexp.QuoteMeta(line[at:v[0]])
			at = v[1]
			switch part := line[v[0]:v[1]]; {
			case part == "…":
				pattern += `.*`
			case !measured:
				pattern += regexp.QuoteMeta(part)
			case part[0] == ' ':
				pattern += ` +`
			default:
				pattern += `[-+]?[0-9][0-9.,]*`
			}
		}
		pattern += regexp.QuoteMeta(line[at:]) + ` *\n`
	}
	shown, err := regexp.Compile(pattern + `\n*$`)
	if err != nil {
		return err
	}
	if !shown.MatchString(strings.TrimRight(got, "\n") + "\n") {
		return fmt.Errorf("the command prints\n%s\nthe page shows\n%s", got, want)
	}
	return nil
}
