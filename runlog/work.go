package runlog

// Work is what became of the inner steps of a run.
type Work struct {
	// StepsDone counts completed inner steps, StepsLost those of them that no
	// outer step has taken in.
	StepsDone int `json:"steps_done"`
	StepsLost int `json:"steps_lost"`
}
