package policy

import (
	"encoding/json"
	"fmt"
)

// plainConfig is a Config without its methods.
type plainConfig Config

// encodedConfig is a Config as it is sent to a process: the policy by its
// registered name and its parameters.
type encodedConfig struct {
	plainConfig
	Name       string          `json:",omitempty"`
	Parameters json.RawMessage `json:",omitempty"`
}

// MarshalJSON encodes a configuration whose policy is registered.
func (c Config) MarshalJSON() ([]byte, error) {
	e := encodedConfig{plainConfig: plainConfig(c)}
	if c.Policy != nil {
		if e.Name = NameOf(c.Policy); e.Name == "" {
			return nil, fmt.Errorf("policy: %T is not registered, and cannot be encoded", c.Policy)
		}
		var err error
		if e.Parameters, err = json.Marshal(c.Policy); err != nil {
			return nil, err
		}
	}
	return json.Marshal(e)
}

// UnmarshalJSON decodes the encoding of MarshalJSON.
func (c *Config) UnmarshalJSON(text []byte) error {
	var e encodedConfig
	if err := json.Unmarshal(text, &e); err != nil {
		return err
	}
	*c = Config(e.plainConfig)
	if e.Name == "" {
		return nil
	}
	p, ok := Named(e.Name)
	if !ok {
		p, ok = prototype(e.Name, true)
	}
	if !ok {
		return fmt.Errorf("policy: %s is not registered", e.Name)
	}
	c.Policy = p
	return json.Unmarshal(e.Parameters, p)
}
