package estimate

import (
	"fmt"
	"math"
)

// Preset is a published run, as inputs of an estimate.
type Preset struct {
	Name        string     `json:"name"`
	Description string     `json:"description"`
	Source      string     `json:"source"`
	Assumed     string     `json:"assumed,omitempty"` // values that the source does not give
	Inputs      Inputs     `json:"inputs"`
	Reported    []Reported `json:"reported"`
}

// Reported is a published figure of a run, with the estimate's figure.
type Reported struct {
	What     string  `json:"what"`
	Unit     string  `json:"unit"`
	Value    float64 `json:"value"`
	Estimate float64 `json:"estimate"`
	Ratio    float64 `json:"ratio"`          // Estimate ÷ Value
	Term     string  `json:"term,omitempty"` // the wrong term, if the ratio is off by more than 0.2
}

const (
	h100         = 0.9894 // dense peak with FP16, 10¹⁵ FLOP/s
	noLimit      = 1e8    // Mbit/s: links inside a node are not part of the network
	intellect1   = "Jaghouar et al. 2024, INTELLECT-1, arXiv:2412.01152"
	streaming    = "Douillard et al. 2025, Streaming DiLoCo, arXiv:2501.18512, table 4"
	llmFoundry   = "github.com/mosaicml/llm-foundry, scripts/train/benchmarking, commit 061f2c7"
	factorTwo    = "the factor 2 and f_global of T_sync: the authors count a transfer once, and count no waiting for slow nodes"
	noAttention  = "6 · P_active of T_comp: attention is left out, while the published MFU counts it"
	overlapsOnce = "max() of T_outer: in this run a fragment overlaps with a few steps, not with all of them"
)

// Presets returns the published runs, with the given variant's estimates of
// their reported figures.
func Presets(v Variant) []Preset {
	all := []Preset{
		preset("page-defaults", "the defaults that the simulator's page and document list", "Decentralized Training Simulator, 25 February 2026", "", nil),
		preset("page-as-opened", "the page as it opens: its precision selector sets both compressions to 1", "Decentralized Training Simulator, 25 February 2026", "",
			func(in *Inputs) { in.Compression, in.PPCompression = 1, 1 }),
		intellect("intellect-1-usa", "INTELLECT-1 within the USA", 1886),
		intellect("intellect-1-usa-europe", "INTELLECT-1 in the USA and Europe", 509),
		intellect("intellect-1-global", "INTELLECT-1 on three continents", 414),
		preset("diloco", "DiLoCo: 150 million parameters, 8 workers, 500 inner steps", "Douillard et al. 2023, DiLoCo, arXiv:2311.08105",
			"the model is the middle one of the paper's models (60, 150 and 400 million); hardware and network are the page's defaults", func(in *Inputs) {
				in.Parameters, in.NumNodes, in.InnerSteps, in.StreamingEnabled = 150e6, 8, 500, false
			}),
	}
	for _, s := range []struct {
		name         string
		params, step float64
	}{{"1b", 1e9, 0.1}, {"10b", 10e9, 0.8}, {"100b", 100e9, 4.9}} {
		all = append(all, streamed("diloco-"+s.name, "simulated in the Streaming DiLoCo paper, nothing overlapped", s.params, s.step, false),
			streamed("streaming-diloco-"+s.name, "simulated in the Streaming DiLoCo paper, overlapped", s.params, s.step, true))
	}
	all = append(all,
		preset("swarm", "SWARM: 1.01·10⁹ shared parameters on 400 preemptible T4 with less than 200 Mbit/s", "Ryabinin et al. 2023, SWARM Parallelism, arXiv:2301.11913",
			"latency, batch and MFU are the page's, and there is a sync at every step", func(in *Inputs) {
				in.Parameters, in.NumNodes, in.PFLOPSPerNode, in.VRAMPerNode = 1.01e9, 400, 0.065, 16
				in.BandwidthMbps, in.InnerSteps, in.Compression = 200, 1, 2
				in.StreamingEnabled = false
			}),
		cluster("mpt-7b-2k", "MPT-7B on 8 H100, context of 2,048", llmFoundry, 6658859008, 98304, 0.4644, 8),
		cluster("mpt-7b-8k", "MPT-7B on 8 H100, context of 8,192", llmFoundry, 6684024832, 1048576, 0.3714, 8),
		cluster("mpt-7b-64k", "MPT-7B on 8 H100, context of 65,536", llmFoundry, 6918905856, 1048576, 0.2859, 8),
		llama(),
	)
	for i := range all {
		all[i].report(Compute(all[i].Inputs, v))
	}
	return all
}

func preset(name, description, source, assumed string, change func(*Inputs)) Preset {
	p := Preset{name, description, source, assumed, Defaults(), []Reported{}}
	if change != nil {
		change(&p.Inputs)
	}
	return p
}

func intellect(name, description string, mbps float64) Preset {
	return preset(name, description, intellect1, "the rate of the links, so that a sync takes the reported time; 14 nodes in every variant; a peak of 0.9894·10¹⁵ FLOP/s for each of 8 H100", func(in *Inputs) {
		in.Parameters, in.Tokens, in.NumNodes, in.PFLOPSPerNode, in.VRAMPerNode = 10.2e9, 1e12, 14, 8*h100, 640
		in.MFU, in.InnerSteps, in.LocalBatch, in.Compression = 0.433, 100, 128*8192, 2
		in.BandwidthMbps, in.StreamingEnabled = mbps, false
	})
}

func streamed(name, description string, params, step float64, overlap bool) Preset {
	return preset(name, description, streaming, fmt.Sprintf("the peak of a node, so that an inner step takes %v s (a fitted time, not a published one); two nodes, no latency, 100 inner steps", step), func(in *Inputs) {
		in.Parameters, in.Tokens, in.NumNodes, in.InnerSteps, in.Compression = params, 20*params, 2, 100, 1
		in.PFLOPSPerNode = 6 * params * in.LocalBatch / (step * in.MFU * 1e15)
		in.BandwidthMbps, in.LatencyMs, in.StreamingEnabled = 10000, 0, overlap
	})
}

// cluster is a cluster as a single node, without a network.
func cluster(name, description, source string, params, batch, mfu, gpus float64) Preset {
	return preset(name, description, source, "all GPUs, of 0.9894·10¹⁵ FLOP/s each, are in one node, whose internal links are not part of the network", func(in *Inputs) {
		in.Parameters, in.Tokens, in.LocalBatch, in.MFU = params, 1e12, batch, mfu
		in.NumNodes, in.PFLOPSPerNode, in.VRAMPerNode = 1, gpus*h100, gpus*80
		in.BandwidthMbps, in.LatencyMs, in.InnerSteps = noLimit, 0, 1
	})
}

func llama() Preset {
	p := cluster("llama-3.1-405b", "Llama-3.1 405B on 16,384 H100 in a cluster", "Dubey et al. 2024, The Llama 3 Herd of Models, arXiv:2407.21783, and its model card", 405e9, 16<<20, 0.40, 16384)
	p.Inputs.Tokens = 15.6e12
	return p
}

// report adds the published figures to the results.
func (p *Preset) report(r Results) {
	add := func(what, unit string, value, estimate float64, term string) {
		ratio := estimate / value
		if math.Abs(ratio-1) <= 0.2 {
			term = ""
		}
		p.Reported = append(p.Reported, Reported{what, unit, value, estimate, ratio, term})
	}
	utilisation := 100 * r.ComputeBlockSec / (r.ComputeBlockSec + r.GlobalCommSec)
	intellect := func(util, mfu float64) {
		add("100 inner steps", "min", 38, r.ComputeBlockSec/60, "")
		add("compute utilisation", "%", util, utilisation, "")
		add("MFU", "%", mfu, r.GlobalMFU, "")
	}
	// A sync takes as much longer as the rate is lower: there is no latency.
	rate := func(share, gbps float64, term string) {
		longest := r.ComputeBlockSec * (1 - share) / share
		if p.Inputs.StreamingEnabled {
			longest = r.ComputeBlockSec / share
		}
		add("rate for a utilisation of "+percent(share), "Gbit/s", gbps, p.Inputs.BandwidthMbps/1000*r.GlobalCommSec/longest, term)
	}
	perGPU := func(value float64) {
		gpus := p.Inputs.PFLOPSPerNode / h100
		add("throughput of a GPU", "tokens/s", value, p.Inputs.Tokens/(r.RawDays*secondsPerDay)/gpus, noAttention)
	}
	switch p.Name {
	case "intellect-1-usa":
		intellect(95.7, 41.4)
	case "intellect-1-usa-europe":
		intellect(85.6, 37.1)
	case "intellect-1-global":
		intellect(83.0, 36.2)
	case "diloco":
		add("learning efficiency", "%", 100, r.Efficiency, "eta: α grows as models get smaller, and has no measurement behind it; the paper's run learnt as well as synchronous training")
	case "diloco-1b":
		rate(0.5, 1.4, factorTwo)
	case "diloco-100b":
		rate(0.95, 49, factorTwo)
	case "streaming-diloco-1b":
		rate(0.95, 9.1, overlapsOnce)
	case "streaming-diloco-10b":
		rate(0.95, 6.2, overlapsOnce)
	case "streaming-diloco-100b":
		rate(0.95, 5.2, factorTwo)
	case "mpt-7b-2k":
		perGPU(10643)
	case "mpt-7b-8k":
		perGPU(6935)
	case "mpt-7b-64k":
		perGPU(1956)
	case "llama-3.1-405b":
		add("GPU hours", "10⁶ h", 30.84, r.RawDays*24*p.Inputs.PFLOPSPerNode/h100/1e6, "")
	}
}

func percent(share float64) string { return trim(100*share) + " %" }
