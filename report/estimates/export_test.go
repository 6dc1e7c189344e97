package estimates

var (
	Parse  = parse
	Groups = groups
)
