// Command cyclonus is upstream's, whose `generate` here asks in batches: the same cases, verdicts and output, but each
// pod gets its connects of a step as one list by one exec, instead of an exec through the API server for each.
//
// Upstream's packages can do that; the flag for it is commented out in its command (pkg/cli/generate.go).
package main

import (
	"fmt"
	"strings"

	"github.com/mattfenwick/collections/pkg/json"
	"github.com/mattfenwick/cyclonus/pkg/cli"
	"github.com/mattfenwick/cyclonus/pkg/connectivity"
	"github.com/mattfenwick/cyclonus/pkg/connectivity/probe"
	"github.com/mattfenwick/cyclonus/pkg/generator"
	"github.com/mattfenwick/cyclonus/pkg/kube"
	"github.com/mattfenwick/cyclonus/pkg/utils"
	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
)

const requestsPerSecond = 50

func main() {
	root := cli.SetupRootCommand()
	command, _, err := root.Find([]string{"generate"})
	utils.DoOrDie(err)
	command.Run = func(command *cobra.Command, _ []string) { generate(arguments(command.Flags())) }
	utils.DoOrDie(root.Execute())
}

// arguments reads the flags that upstream's command has declared.
func arguments(flags *pflag.FlagSet) *cli.GenerateArgs {
	return &cli.GenerateArgs{
		AllowDNS:                  must(flags.GetBool("allow-dns")),
		Noisy:                     must(flags.GetBool("noisy")),
		IgnoreLoopback:            must(flags.GetBool("ignore-loopback")),
		PerturbationWaitSeconds:   must(flags.GetInt("perturbation-wait-seconds")),
		PodCreationTimeoutSeconds: must(flags.GetInt("pod-creation-timeout-seconds")),
		Retries:                   must(flags.GetInt("retries")),
		Context:                   must(flags.GetString("context")),
		ServerPorts:               must(flags.GetIntSlice("server-port")),
		ServerProtocols:           must(flags.GetStringSlice("server-protocol")),
		ServerNamespaces:          must(flags.GetStringSlice("namespace")),
		ServerPods:                must(flags.GetStringSlice("pod")),
		CleanupNamespaces:         must(flags.GetBool("cleanup-namespaces")),
		FailFast:                  must(flags.GetBool("fail-fast")),
		Include:                   must(flags.GetStringSlice("include")),
		Exclude:                   must(flags.GetStringSlice("exclude")),
		DestinationType:           must(flags.GetString("destination-type")),
		Mock:                      must(flags.GetBool("mock")),
		DryRun:                    must(flags.GetBool("dry-run")),
		JobTimeoutSeconds:         must(flags.GetInt("job-timeout-seconds")),
		JunitResultsFile:          must(flags.GetString("junit-results-file")),
		ImageRegistry:             must(flags.GetString("image-registry")),
	}
}

// generate does what RunGenerateCommand of pkg/cli does, with batches.
func generate(args *cli.GenerateArgs) {
	fmt.Printf("args: \n%s\n", json.MustMarshalToString(args))
	cli.RunVersionCommand()
	utils.DoOrDie(generator.ValidateTags(append(args.Include, args.Exclude...)))

	cluster := connect(args)
	resources := must(probe.NewDefaultResources(cluster, args.ServerNamespaces, args.ServerPods, args.ServerPorts,
		protocols(args.ServerProtocols), nil, args.PodCreationTimeoutSeconds, true, args.ImageRegistry))
	cases := testCases(args, resources)
	if args.DryRun {
		return
	}
	execute(args, cluster, resources, cases)

	if args.CleanupNamespaces {
		for _, namespace := range args.ServerNamespaces {
			logrus.Infof("cleaning up namespace %s", namespace)
			if err := cluster.DeleteNamespace(namespace); err != nil {
				logrus.Warnf("%+v", err)
			}
		}
	}
}

func connect(args *cli.GenerateArgs) kube.IKubernetes {
	if args.Mock {
		return kube.NewMockKubernetes(1.0)
	}
	client := must(kube.NewKubernetesForContext(args.Context))
	// Without these, five requests a second: setting everything back would take longer than what a case asks.
	client.RestConfig.QPS, client.RestConfig.Burst = requestsPerSecond, requestsPerSecond
	client.ClientSet = must(kubernetes.NewForConfig(client.RestConfig))
	version := must(client.ClientSet.ServerVersion())
	fmt.Printf("Kubernetes server version: \n%s\n", json.MustMarshalToString(version))
	return client
}

func testCases(args *cli.GenerateArgs, resources *probe.Resources) []*generator.TestCase {
	pod := must(resources.GetPod("z", "c"))
	cases := generator.NewTestCaseGenerator(
		args.AllowDNS, pod.IP, args.ServerNamespaces, args.Include, args.Exclude).GenerateTestCases()
	fmt.Printf("test cases to run by tag:\n")
	for tag, count := range generator.CountTestCasesByTag(cases) {
		fmt.Printf("- %s: %d\n", tag, count)
	}
	fmt.Printf("testing %d cases\n\n", len(cases))
	for i, one := range cases {
		fmt.Printf("test #%d: %s\n - tags: %+v\n", i+1, one.Description, strings.Join(one.Tags.Keys(), ", "))
	}
	if args.DestinationType != "" {
		mode := must(generator.ParseProbeMode(args.DestinationType))
		for _, one := range cases {
			for _, step := range one.Steps {
				step.Probe.Mode = mode
			}
		}
	}
	return cases
}

func execute(
	args *cli.GenerateArgs, cluster kube.IKubernetes, resources *probe.Resources, cases []*generator.TestCase,
) {
	interpreter := connectivity.NewInterpreter(cluster, resources, &connectivity.InterpreterConfig{
		ResetClusterBeforeTestCase:       true,
		KubeProbeRetries:                 args.Retries,
		PerturbationWaitSeconds:          args.PerturbationWaitSeconds,
		VerifyClusterStateBeforeTestCase: true,
		BatchJobs:                        true,
		IgnoreLoopback:                   args.IgnoreLoopback,
		JobTimeoutSeconds:                args.JobTimeoutSeconds,
		FailFast:                         args.FailFast,
	})
	printer := &connectivity.Printer{
		Noisy: args.Noisy, IgnoreLoopback: args.IgnoreLoopback, JunitResultsFile: args.JunitResultsFile,
	}
	for i, one := range cases {
		fmt.Printf("starting test case #%d\n", i+1)
		result := interpreter.ExecuteTestCase(one)
		utils.DoOrDie(result.Err)
		printer.PrintTestCaseResult(result)
		fmt.Printf("finished policy #%d\n", i+1)
		if args.FailFast && !result.Passed(args.IgnoreLoopback) {
			logrus.Warn("failing fast due to failure")
			break
		}
	}
	printer.PrintSummary()
}

func protocols(names []string) []v1.Protocol {
	var found []v1.Protocol
	for _, name := range names {
		found = append(found, must(kube.ParseProtocol(name)))
	}
	return found
}

func must[T any](value T, err error) T {
	utils.DoOrDie(err)
	return value
}
