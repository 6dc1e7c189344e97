package scenarios

// Topic groups scenarios of the library with the same subject.
type Topic struct {
	Name      string
	Meaning   string
	Scenarios []string // their names, in a good order for reading
}

// Topics are the groups of the library; each scenario is in one.
func Topics() []Topic {
	return []Topic{
		{"basics", "a few workers and one event", []string{
			"homogeneous", "persistent_straggler", "transient_slow", "late_join", "crash_mid_round", "graceful_leave",
		}},
		{"work", "how long inner steps take", []string{
			"lognormal_16", "mixed_gpus", "noisy_neighbours", "short_stalls", "diurnal",
		}},
		{"links", "slow, distant and failing links", []string{
			"three_regions", "mobile_uplink", "flapping_link", "partition_heal",
		}},
		{"faults", "crashes, pauses, preemptions, and failures of the coordinator", []string{
			"pause_resume", "donor_dies", "joiner_dies", "coordinator_crash", "churn_storm", "spot_fleet", "prime_defaults",
		}},
		{"learning", "training of a language model, with its loss", []string{
			"charlm_straggler", "charlm_regions",
		}},
		{"torchft", "torchft's quorum, and the problems that its documentation warns of", []string{
			"torchft_groups", "torchft_mtbf_60s", "torchft_mtbf_15s",
			"torchft_t01", "torchft_t02", "torchft_t03", "torchft_t04", "torchft_t05", "torchft_t06", "torchft_t07", "torchft_t08",
			"torchft_t09", "torchft_t10", "torchft_t11", "torchft_t12", "torchft_t13", "torchft_t14", "torchft_t15", "torchft_t16", "torchft_t17", "torchft_t18",
		}},
	}
}
