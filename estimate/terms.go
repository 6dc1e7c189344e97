package estimate

// Term is an intermediate quantity of an estimate: Name = Formula = Value.
type Term struct {
	Name    string  `json:"name"`
	Value   float64 `json:"value"`
	Unit    string  `json:"unit"`
	Formula string  `json:"formula"`
	Place   string  `json:"place"` // section of the document, or page: where the page differs from it
}

// Estimate is a result with its derivation.
type Estimate struct {
	Variant     Variant      `json:"variant"`
	Inputs      Inputs       `json:"inputs"`
	Results     Results      `json:"results"`
	Warnings    []Warning    `json:"warnings"`
	Terms       []Term       `json:"terms"`
	Derivatives []Derivative `json:"derivatives"`
}

// Explain estimates a run, as the page or the document does, and gives the
// derivation. The inputs must have passed Check.
func Explain(in Inputs, v Variant) Estimate { return explain(in, published(v)) }

func explain(in Inputs, f formulas) Estimate {
	q := quantify(&in, f)
	return Estimate{f.variant, in, q.results(&in), warn(&in, &q, f.variant), terms(&in, &q, f), derivatives(in, f)}
}

// pick returns the page's or the document's value.
func (v Variant) pick(page, document string) string {
	if v == Document {
		return document
	}
	return page
}

func terms(in *Inputs, q *quantities, f formulas) []Term {
	v := f.variant
	all := []Term{{"P_active", q.activeParams, "parameters", "activeParams of a mixture of experts, else parameters", "1.2"}}
	add := func(name string, value float64, unit, formula, place string) {
		all = append(all, Term{name, value, unit, formula, place})
	}
	add("C", 6*q.activeParams*in.Tokens, "FLOP", "6 · P_active · tokens", "1.1")
	add("beta", q.bytesPerParam, "bytes/parameter", "16 (FP16), 14 (FP8), 13 (FP4)", "2.1")
	if in.IsMoE {
		add("N_EP", q.epDegree, "nodes", "1 without expert parallelism, nodesPerGroup (regional), numNodes (global)", "2.4")
		add("P_node", q.perNodeParams, "parameters", v.pick("P_active + (parameters − P_active) ÷ N_EP", "parameters if they fit; else P_active + (parameters − P_active) ÷ N_EP"), v.pick("2.4 (page)", "2.4, A"))
		add("T_EP", q.epLatency, "s", v.pick("2 · moeLayers · latency of the region (0 without useHierarchy) or of all (ms ÷ 1000)", "2 · moeLayers · latency of the region or of all (ms ÷ 1000)"), v.pick("1.5 (page)", "1.5"))
	} else {
		add("P_node", q.perNodeParams, "parameters", "parameters", "2.1")
	}
	add("M_req", q.memory, "bytes", "P_node · beta", "2.1")
	add("S", q.stages, "stages", "⌈M_req ÷ (vramPerNode · 10⁹)⌉; not sharded if it is 1", "2.2")
	add("N_eff", q.effectiveNodes, "nodes", "numNodes, ÷ 1.1 with redundancy", "5.2")
	add("T_comp", q.step, "s", "6 · P_active · localBatch ÷ (pflopsPerNode · 10¹⁵ · mfu) + T_EP", "1.2")
	if q.mode == onePipeline {
		add("H_eff", q.effectiveSteps, "steps", v.pick("innerSteps, · √regionalSteps with useHierarchy", "innerSteps"), v.pick("4.4 (page)", "4.4"))
	} else {
		add("H_eff", q.effectiveSteps, "steps", v.pick("innerSteps, · √regionalSteps with useHierarchy", "innerSteps, · √regionalSteps in hierarchical mode"), v.pick("4.4 (page)", "4.4"))
	}
	add("alpha", q.alpha, "", "0.08 ÷ (1 + log10(parameters ÷ 10⁹) ÷ 5)", "4.3")
	add("eta", q.eta, "", "max(0.4, (1 − alpha · log10 H_eff) ÷ (1.15 with threshold, else 1))", "4.1")
	syncTerms(in, q, f, add)
	add("outer_steps", q.outerSteps, "", map[mode]string{
		dataParallel:   "tokens ÷ (localBatch · N_eff · innerSteps)",
		hierarchical:   "tokens ÷ (localBatch · N_eff · innerSteps · regionalSteps)",
		onePipeline:    "tokens ÷ (localBatch · pipelines)",
		pipelineGroups: "tokens ÷ (localBatch · G · innerSteps)",
	}[q.mode], map[mode]string{dataParallel: "3.1", hierarchical: "3.2", onePipeline: "3.3", pipelineGroups: "3.4"}[q.mode])
	add("raw_days", q.rawDays, "days", "outer_steps · T_outer ÷ 86400", "3")
	add("days", q.days, "days", "raw_days ÷ eta", "4.1")
	add("global_MFU", q.globalMFU, "", "C ÷ (numNodes · pflopsPerNode · 10¹⁵ · days · 86400)", "6.1")
	add("global_HFU", q.globalHFU, "", "global_MFU ÷ 0.8", "6.2")
	add("max_days", q.maxDay, "days", "365 ÷ ((hwGrowth + swGrowth + investGrowth) · ln 10)", "7.1")
	return all
}

// says returns the published formula and its place or, in the measured variant,
// the formula that replaces it.
func (f formulas) says(published, place, measured string) (formula, where string) {
	if f.variant == Measured {
		return measured, "measured"
	}
	return published, place
}

// syncTerms adds the terms of a mode between an inner step and an outer one.
func syncTerms(in *Inputs, q *quantities, f formulas, add func(name string, value float64, unit, formula, place string)) {
	changed := func(name string, value float64, unit, published, place, measured string) {
		formula, where := f.says(published, place, measured)
		add(name, value, unit, formula, where)
	}
	const factor = "1 + 0.05 · log2 n; 1 with threshold; 1 + 0.3 · 0.05 · log2 n with redundancy; n = "
	const notSyncs = "1: slow nodes delay computing, f_compute"
	if f.variant == Measured {
		const waits = "1 + c · log2 n; 1 with threshold; 1 + 0.3 · c · log2 n with redundancy; n = "
		add("c", f.coefficient(in), "", "calibrated, for √(nodeSpread² + stepSpread² ÷ innerSteps)", "measured")
		add("f_compute", q.fCompute, "", waits+map[bool]string{false: "N_eff", true: "S · ⌊N_eff ÷ S⌋, at least S"}[q.sharded()], "measured")
	}
	if q.sharded() {
		pipelineTerms(in, q, f, changed, add)
		changed("f_stages", q.fStages, "", factor+"S", "5.1, 5.2", notSyncs)
		add("T_transfer", q.transfer, "s", "slots · T_micro_comm · f_stages", "3.3")
		add("T_latency", q.latency, "s", "slots · Lat_PP · f_stages", "3.3")
		add("T_step", q.pipelineStep, "s", "slots · T_micro_comp + T_transfer + T_latency", "3.3")
	}
	if q.mode == onePipeline {
		add("pipelines", q.pipelines, "", f.variant.pick("max(1, N_eff ÷ S)", "1"), f.variant.pick("3.3 (page)", "3.3"))
		add("block", q.block, "s", "slots · T_micro_comp", "3.3")
		add("T_outer", q.outer, "s", "T_step", "3.3")
		return
	}
	both := func(compute, sync string) (published, measured string) {
		if !in.StreamingEnabled {
			return "sum(" + compute + ", " + sync + ")", compute + " + " + sync
		}
		return "max(" + compute + ", " + sync + ")", compute + " + max(0, " + sync + " − min(1, fragments · overlapSteps ÷ inner steps since the last one) · " + compute + ")"
	}
	place := map[mode]string{dataParallel: "3.1", hierarchical: "3.2", pipelineGroups: "3.4"}[q.mode]
	ring := func(rate, latency, n string) string {
		return "for each fragment c + d + (2(n − 1) − 1) · max(c, p + d) + reduce, 0 if n ≤ 1; a chunk c and its first piece p on a link of " + rate + " · 10⁶ · efficiency, a hop d = " + latency + " ÷ 2000 + hop; n = " + n
	}
	add("V", q.volumeBits, "bit", "16 · parameters ÷ compression", "3.1")
	if q.mode == hierarchical {
		changed("f_regional", q.fRegional, "", factor+"nodesPerGroup", "5.1, 5.2", notSyncs)
		changed("T_regional", q.regionalSync, "s", "(2 · V ÷ (regionalBandwidth · 10⁶) + regionalLatency ÷ 1000) · f_regional", "3.2", ring("regionalBandwidth", "regionalLatency", "nodesPerGroup"))
		cycle, _ := both("innerSteps · T_comp", "T_regional")
		_, measured := both("innerSteps · T_comp · f_compute", "T_regional")
		changed("T_regional_cycle", q.regionalCycle, "s", cycle, "3.2", measured)
	}
	groups, block, before := "N_eff", "innerSteps · T_comp", "block"
	waiting := block + " · f_compute"
	switch q.mode {
	case hierarchical:
		groups, block, before = "N_eff ÷ nodesPerGroup", "innerSteps · regionalSteps · T_comp", "regionalSteps · T_regional_cycle"
		waiting = block + " · f_compute"
	case pipelineGroups:
		groups, block, waiting = "⌊N_eff ÷ S⌋", "innerSteps · T_step", "innerSteps · T_step"
	}
	add("G", q.groups, "", groups, place)
	changed("f_global", q.fGlobal, "", factor+"G", "5.1, 5.2", notSyncs)
	changed("T_sync", q.globalSync, "s", "(2 · V ÷ (bandwidthMbps · 10⁶) + latencyMs ÷ 1000) · f_global", place, ring("bandwidthMbps", "latencyMs", "G"))
	changed("block", q.block, "s", block, place, waiting)
	outer, measured := both(before, "T_sync")
	changed("T_outer", q.outer, "s", outer, place, measured)
}

// pipelineTerms adds the terms of a pipeline's slot.
func pipelineTerms(in *Inputs, q *quantities, f formulas, changed func(name string, value float64, unit, published, place, measured string), add func(name string, value float64, unit, formula, place string)) {
	v := f.variant
	bandwidth, latency := "bandwidthMbps", "latencyMs"
	if in.UseHierarchy {
		bandwidth, latency = "regionalBandwidth", "regionalLatency"
	}
	add("h", q.hidden, "", "0.03 · √parameters", "3.3")
	add("A", q.activationBits, "bit", v.pick("2 · 16 · localBatch · h ÷ ppCompression", "16 · localBatch · h"), v.pick("3.3 (page)", "3.3"))
	add("BW_PP", q.handoffMbps, "10⁶ bit/s", bandwidth, "3.4")
	add("Lat_PP", q.handoffLatency, "s", latency+" ÷ 1000", "3.4")
	changed("T_micro_comp", q.microCompute, "s", "T_comp ÷ microBatches", "3.3", "T_comp ÷ microBatches ÷ S · f_compute")
	add("T_micro_comm", q.microTransfer, "s", "A ÷ microBatches ÷ (BW_PP · 10⁶)", "3.3")
	add("slots", q.slots, "", "microBatches + S − 1", "3.3")
}
