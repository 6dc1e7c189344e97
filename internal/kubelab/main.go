// Command kubelab is the part of a Kubernetes cluster that tests of manifests
// need: its API server, whose flags it takes, and the controllers of Jobs and
// of services' endpoints.
package main

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/cli"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/pkg/controller/endpointslice"
	"k8s.io/kubernetes/pkg/controller/job"
)

func main() {
	server := app.NewAPIServerCommand()
	server.PreRunE = func(cmd *cobra.Command, _ []string) error {
		port, err := cmd.Flags().GetInt("secure-port")
		if err != nil {
			return err
		}
		file, err := cmd.Flags().GetString("token-auth-file")
		if err != nil {
			return err
		}
		users, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		token, _, _ := strings.Cut(string(users), ",")
		client, err := kubernetes.NewForConfig(&rest.Config{
			Host: "https://127.0.0.1:" + strconv.Itoa(port), BearerToken: token, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
			QPS: -1, // without a limit
		})
		if err != nil {
			return err
		}
		go control(cmd.Context(), client)
		return nil
	}
	os.Exit(cli.Run(server))
}

// control runs the controllers as soon as the server is ready.
func control(ctx context.Context, client *kubernetes.Clientset) {
	for client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() != nil {
		time.Sleep(50 * time.Millisecond)
	}
	all := informers.NewSharedInformerFactory(client, 0)
	jobs, err := job.NewController(ctx, client, all.Core().V1().Pods(), all.Batch().V1().Jobs(), nil, nil)
	if err != nil {
		klog.ErrorS(err, "making the controller of Jobs")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
	const atOnce, slice = 5, 100
	slices := endpointslice.NewController(ctx, all.Core().V1().Pods(), all.Core().V1().Services(), all.Core().V1().Nodes(), all.Discovery().V1().EndpointSlices(), slice, client, 0)
	all.Start(ctx.Done())
	go jobs.Run(ctx, atOnce)
	slices.Run(ctx, atOnce)
}
