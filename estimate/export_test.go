package estimate

// Codes returns the codes of all warnings.
func Codes() (codes []string) {
	for _, r := range rules {
		codes = append(codes, r.code)
	}
	return codes
}
