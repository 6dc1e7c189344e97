package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"testbed/internal/errs"
	"testbed/record"
	"testbed/scenarios"
	"testbed/train/task"
)

func sampleCommand() *cobra.Command {
	var prompt string
	var length int
	var temperature float64
	var seed uint64
	cmd := &cobra.Command{
		Use: "sample DIR", Short: "Write text with the language model of a run",
		Long: `Continues a prompt with the language model that a run left in its directory, or
that testbed simulate --train --model FILE wrote.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errs.Usagef("name the directory of a run that has trained a model, or the model's file")
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&prompt, "prompt", "She ", "beginning of the text")
	cmd.Flags().IntVar(&length, "length", 400, "how many bytes to write")
	cmd.Flags().Float64Var(&temperature, "temperature", 0.7, "temperature: 0 always takes the likeliest byte; 1 draws with the model's probabilities")
	cmd.Flags().Uint64Var(&seed, "seed", 0, "seed of the random choices; 0 takes a new seed each time")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		file := args[0]
		if info, err := os.Stat(file); err == nil && info.IsDir() {
			file = filepath.Join(file, record.ModelFile)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return noModel(args[0], file, err)
		}
		model, err := task.ReadTrained(data)
		if err != nil {
			return &scenarios.Error{File: file, Problem: err.Error()}
		}
		if seed == 0 {
			seed = rand.Uint64()
		}
		text, err := model.Sample(prompt, length, temperature, seed)
		if err != nil {
			return errs.Usage(err)
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), prompt+text)
		return err
	}
	return cmd
}

// noModel is the error of an argument whose file of a model cannot be read.
func noModel(named, file string, err error) error {
	const fix = "; name the directory of a run that has trained a model (train.task: charlm in its scenario), or the model's file"
	switch {
	case !errors.Is(err, fs.ErrNotExist):
		return &scenarios.Error{File: file, Problem: "cannot be read: " + errs.Cause(err).Error()}
	case named == file:
		return &scenarios.Error{File: named, Problem: "there is no model: no file or directory has this name" + fix}
	}
	return &scenarios.Error{File: named, Problem: "there is no model: the directory has no file called " + record.ModelFile + fix}
}
