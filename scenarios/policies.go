package scenarios

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"testbed/internal/errs"
	"testbed/policy"
	_ "testbed/policy/adaptive" // registers it
	"testbed/policy/program"
	"testbed/policy/torchft"
	"testbed/scenarios/faults"
)

// Policies are the parameters of the policies, and the settings that hold under
// any policy.
type Policies struct {
	// Parameters are the policies' parameters, by policy name: for the two default
	// policies, and for those with a section in the file. Any other policy has its
	// defaults. Copies of a scenario share them and do not change them.
	Parameters map[string]policy.Policy `yaml:"-" json:"-"`
	// When a late joiner begins to contribute. `running`: it begins the running round at
	// once. `next`: it begins with the next round. `zeros`: it contributes zeros to the
	// running round if it has the state in time. `blocking`: as `zeros`, and the others
	// wait while it fetches the state.
	Join policy.JoinMode `yaml:"join" json:"join,omitempty"`
	// Whether workers evicted alive or for slowness may come back.
	Rejoin policy.RejoinMode `yaml:"rejoin" json:"rejoin,omitempty"`
	// With `rejoin: after_rounds`: outer steps from a worker's eviction to its return. 0
	// counts as 1.
	RejoinRounds int `yaml:"rejoin_rounds" json:"rejoin_rounds,omitempty"`
	// Parameters of policy programs, by name. They apply to every program that is named
	// without them.
	Program map[string]program.Value `yaml:"program" json:"program,omitempty"`
	// The weight, in a worker's next contribution, of a pseudo-gradient that missed its
	// round. 0 discards the late pseudo-gradient. No decision depends on the weight.
	StalenessWeight float64 `yaml:"staleness_weight" json:"staleness_weight,omitempty"`
}

// Names of the policies that are compared by default.
const (
	Baseline  = "baseline"
	Straggler = "straggler"
)

// PolicyNames lists the default policies in the order in which they are shown.
var PolicyNames = []string{Baseline, Straggler}

// DefaultPolicies returns the policies of a scenario without the section
// policy.
func DefaultPolicies() Policies {
	p := Policies{Parameters: map[string]policy.Policy{}}
	for _, name := range PolicyNames {
		p.Parameters[name], _ = policy.Named(name)
	}
	return p
}

var (
	policiesType    = reflect.TypeFor[Policies]()
	parametersField = func() []int { f, _ := policiesType.FieldByName("Parameters"); return f.Index }()
)

// parametersType returns the type of the section of a policy. In a file the
// section is a field of Policies.
func parametersType(t reflect.Type, name string) (reflect.Type, bool) {
	if t != policiesType {
		return nil, false
	}
	p, ok := policy.Named(name)
	if !ok {
		return nil, false
	}
	return reflect.TypeOf(p).Elem(), true
}

// MoreNames are the names of the policies. MoreType is the type of a policy's
// parameters. Each policy may have a section of its own.
func (Policies) MoreNames() []string { return policy.Names() }

func (Policies) MoreType(name string) (reflect.Type, bool) {
	return parametersType(policiesType, name)
}

// UnmarshalYAML reads a section that has been checked.
func (p *Policies) UnmarshalYAML(n *yaml.Node) error {
	type plain Policies
	if err := n.Decode((*plain)(p)); err != nil {
		return err
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if params, ok := policy.Named(n.Content[i].Value); ok {
			if err := n.Content[i+1].Decode(params); err != nil {
				return err
			}
			p.Parameters[n.Content[i].Value] = params
		}
	}
	return nil
}

// MarshalJSON writes the section as it is read: first the policies' sections,
// as fields of a struct type made for them.
func (p Policies) MarshalJSON() ([]byte, error) {
	var fields []reflect.StructField
	var values []reflect.Value
	for k, name := range policy.Names() {
		if params, ok := p.Parameters[name]; ok {
			value := reflect.ValueOf(params)
			fields = append(fields, reflect.StructField{Name: fmt.Sprint("Policy", k), Type: value.Type(), Tag: reflect.StructTag(fmt.Sprintf("json:%q", name))})
			values = append(values, value)
		}
	}
	for _, field := range reflect.VisibleFields(policiesType) {
		fields = append(fields, field)
		values = append(values, reflect.ValueOf(p).FieldByIndex(field.Index))
	}
	section := reflect.New(reflect.StructOf(fields)).Elem()
	for k, value := range values {
		section.Field(k).Set(value)
	}
	return json.Marshal(section.Interface())
}

// UnmarshalJSON reads the output of MarshalJSON.
func (p *Policies) UnmarshalJSON(text []byte) error {
	type plain Policies
	var sections map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(text, (*plain)(p)), json.Unmarshal(text, &sections)); err != nil {
		return err
	}
	p.Parameters = map[string]policy.Policy{}
	for name, section := range sections {
		if params, ok := policy.Named(name); ok {
			if err := json.Unmarshal(section, params); err != nil {
				return err
			}
			p.Parameters[name] = params
		}
	}
	return nil
}

func (p *parser) validatePolicies(all Policies) {
	for _, name := range slices.Sorted(maps.Keys(all.Parameters)) {
		p.noteFields("policy."+name+".", all.Parameters[name].Validate())
	}
	if join := all.Join; join != "" && !slices.Contains(policy.JoinModes, join) {
		p.note(p.fail("policy.join", fmt.Sprintf("%q is not a way to join; choose one of %s", join, errs.List(policy.JoinModes))))
	}
	if rejoin := all.Rejoin; rejoin != "" && !slices.Contains(policy.RejoinModes, rejoin) {
		p.note(p.fail("policy.rejoin", fmt.Sprintf("%q is not a way to rejoin; choose one of %s", rejoin, errs.List(policy.RejoinModes))))
	}
	p.note(p.between("policy.rejoin_rounds", int64(all.RejoinRounds), 0, maxCount))
	if w := all.StalenessWeight; !(w >= 0 && w <= 1) {
		p.note(p.fail("policy.staleness_weight", fmt.Sprintf("is %v: it must lie in [0, 1], where 0 discards late contributions", w)))
	}
}

// Named returns the policy of a specification, with the parameters of the
// scenario and of the specification itself. A specification is
// NAME[:parameter=value]…, such as straggler:k=5:quorum=0.5, or
// program:PATH[:parameter=value]…. Machine, not Named, checks a program's
// parameters. Every error is an *Error.
func (p Policies) Named(spec string) (policy.Policy, error) {
	var of parser
	if program.Is(spec) {
		params, err := program.Parse(spec, p.Program)
		if err != nil {
			return nil, of.fail("policy", err.Error())
		}
		return params, nil
	}
	name, settings, given := strings.Cut(spec, ":")
	params, ok := policy.Named(name)
	if !ok {
		return nil, of.fail("policy", fmt.Sprintf("%q is not a policy; choose one of %s, or name a program of your own as program:PATH", name, errs.List(policy.Names())))
	}
	if own, ok := p.Parameters[name]; ok {
		params = own
	}
	fields := reflect.New(reflect.TypeOf(params).Elem())
	fields.Elem().Set(reflect.ValueOf(params).Elem())
	params = fields.Interface().(policy.Policy)
	seen := map[string]bool{}
	for setting := range strings.SplitSeq(settings, ":") {
		field, value, found := strings.Cut(setting, "=")
		switch {
		case !given:
			continue
		case !found:
			return nil, of.fail("policy", fmt.Sprintf("%q has no value in %q; write NAME:parameter=value", setting, spec))
		case seen[field]:
			return nil, of.fail("policy", fmt.Sprintf("%s is given twice in %q: keep one", field, spec))
		}
		seen[field] = true
		s, err := NewSetting("policy."+name+"."+field, value)
		if err != nil {
			return nil, err
		}
		if problem := assign(fields.Elem(), s.steps[len(s.steps)-1:], s.value); problem != "" {
			return nil, of.fail(s.Field, problem)
		}
	}
	of.validatePolicies(Policies{Parameters: map[string]policy.Policy{name: params}})
	return params, of.problem()
}

// lacks reports a field of the scenario that needs a policy with a protocol of
// its own, if the policy has none.
func (s *Scenario) lacks(p policy.Policy, spec string) error {
	if _, own := p.(policy.Protocol); own {
		return nil
	}
	bad := func(field, problem string) error {
		return &Error{File: s.Name, Field: field, Problem: problem + " under " + spec + ": remove it, or choose torchft"}
	}
	if n := s.Train.Ranks(); n > 1 {
		return bad("train.group_world_size", fmt.Sprintf("is %d, but there are no replica groups", n))
	}
	for i, w := range s.Workers {
		switch {
		case w.InitialStep > 0:
			return bad(fmt.Sprintf("workers[%d].initial_step", i), fmt.Sprintf("is %d, but all workers take the same outer steps", w.InitialStep))
		case w.Lighthouse > 0:
			return bad(fmt.Sprintf("workers[%d].lighthouse", i), fmt.Sprintf("is %d, but there are no lighthouses", w.Lighthouse))
		}
	}
	for i, in := range s.Injects {
		if in.Forgets || in.Lighthouse != nil {
			field := map[bool]string{true: "forgets", false: "lighthouse"}[in.Forgets]
			return bad(fmt.Sprintf("injects[%d].%s", i, field), "needs a lighthouse, but there is none")
		}
	}
	return nil
}

// lighthouses are the numbers of the lighthouses that workers ask, by incarnation.
func (s *Scenario) lighthouses() map[policy.ID][]int {
	asks := map[policy.ID][]int{}
	for _, w := range s.Workers {
		asks[w.ID] = []int{w.Lighthouse}
	}
	for _, i := range faults.InTime(s.Injects) {
		if in := s.Injects[i]; in.Op == faults.Restart {
			of := asks[*in.ID]
			next := of[len(of)-1]
			if in.Lighthouse != nil {
				next = *in.Lighthouse
			}
			asks[*in.ID] = append(of, next)
		}
	}
	return asks
}

// configuration is the configuration of the coordinator's machine, before a
// policy is chosen.
func (s *Scenario) configuration() policy.Config {
	cfg := policy.Config{
		HeartbeatPeriod:        s.HeartbeatPeriod,
		HeartbeatMissThreshold: s.HeartbeatMissThreshold,
		TargetOuterSteps:       s.TargetOuterSteps,
		Join:                   s.Policy.Join,
		Rejoin:                 s.Policy.Rejoin,
		RejoinRounds:           s.Policy.RejoinRounds,
		Seed:                   s.Seed,
		Overlap:                s.Exchange().Overlap > 0,
		Grouping:               s.Grouping(),
	}
	if slices.ContainsFunc(s.Workers, func(w Worker) bool { return w.Lighthouse > 0 }) || slices.ContainsFunc(s.Injects, func(in faults.Inject) bool { return in.Lighthouse != nil }) {
		cfg.Lighthouses, cfg.Asks = maxLighthouses, s.lighthouses()
	}
	return cfg
}

// Machine returns the configuration of the policy machine under a policy, which
// is named as in Policies.Named.
func (s *Scenario) Machine(spec string) (policy.Config, error) {
	p, err := s.Policy.Named(spec)
	if err != nil {
		return policy.Config{}, err
	}
	if err := s.lacks(p, spec); err != nil {
		return policy.Config{}, err
	}
	if external, is := p.(policy.External); is {
		if err := external.Validate(); err != nil {
			return policy.Config{}, &Error{File: s.Name, Field: "policy", Problem: err.Error()}
		}
	}
	if t, is := p.(*torchft.Policy); is && t.InitSync && s.Train.Ranks() > 1 && s.Exchange().Overlap > 0 {
		return policy.Config{}, &Error{File: s.Name, Field: "train.outer.overlap", Problem: fmt.Sprintf("is %d, but with init_sync the training of overlapping rounds cannot be computed for groups of several ranks: set overlap to 0, init_sync to false, or group_world_size to 1", s.Exchange().Overlap)}
	}
	cfg := s.configuration()
	cfg.Policy = p
	if _, err := policy.NewCoordinator(cfg); err != nil {
		return cfg, &Error{File: s.Name, Field: "policy", Problem: err.Error()}
	}
	return cfg, nil
}
