// Compiled with kubelet.go or kube_proxy.go, this prints, as JSON, what that program of the linked Kubernetes modules can
// be told: every feature gate, every field of its configuration file and every flag, with their defaults. Nothing is read
// from sources: it asks the same registries, types and defaulting functions that the program is linked with. They are two
// because each has its own registries, which are global.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"

	"github.com/spf13/pflag"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
)

type gate struct {
	Name     string   `json:"name"`
	Stage    string   `json:"stage"`
	Default  bool     `json:"default"`
	Locked   bool     `json:"locked,omitempty"`
	Since    string   `json:"since,omitempty"`
	Requires []string `json:"requires,omitempty"`
}

type field struct {
	Path    string `json:"path"`
	Type    string `json:"type"`
	Default any    `json:"default,omitempty"`
}

type flag struct {
	Name       string `json:"name"`
	Type       string `json:"type"`
	Default    string `json:"default"`
	Deprecated bool   `json:"deprecated,omitempty"`
}

type program struct {
	Gates  []gate  `json:"gates"`
	Fields []field `json:"fields"`
	Flags  []flag  `json:"flags"`
}

// print writes what main() of the other file has found.
func print(config any, set *pflag.FlagSet) {
	must(json.NewEncoder(os.Stdout).Encode(program{gates(), fields(config), flags(set)}))
}

func gates() []gate {
	registry := utilfeature.DefaultMutableFeatureGate
	requires := registry.Dependencies()
	var found []gate
	for name, spec := range registry.GetAll() {
		one := gate{Name: string(name), Stage: stage(spec), Default: spec.Default, Locked: spec.LockToDefault}
		if spec.Version != nil && spec.Version.Major() > 0 {
			one.Since = spec.Version.String()
		}
		for _, other := range requires[name] {
			one.Requires = append(one.Requires, string(other))
		}
		sort.Strings(one.Requires)
		found = append(found, one)
	}
	sort.Slice(found, func(i, j int) bool { return found[i].Name < found[j].Name })
	return found
}

func stage(spec featuregate.FeatureSpec) string {
	if spec.PreRelease == featuregate.GA {
		return "GA"
	}
	return string(spec.PreRelease)
}

// fields lists the leaves of a configuration by their JSON paths. A section is a struct of upstream's own; a quantity or
// a duration is a struct to Go and a value to whoever writes the file, which is seen by how it is marshalled.
func fields(config any) []field {
	var found []field
	value := reflect.ValueOf(config).Elem()
	walk(value.Type(), value, "", &found)
	sort.Slice(found, func(i, j int) bool { return found[i].Path < found[j].Path })
	return found
}

func walk(kind reflect.Type, value reflect.Value, prefix string, found *[]field) {
	for i := 0; i < kind.NumField(); i++ {
		one := kind.Field(i)
		name, _, _ := strings.Cut(one.Tag.Get("json"), ",")
		if one.Name == "TypeMeta" || name == "-" {
			continue
		}
		inner := reflect.Value{}
		if value.IsValid() {
			inner = value.Field(i)
		}
		if name == "" && one.Anonymous {
			walk(one.Type, inner, prefix, found)
			continue
		}
		path, of := prefix+name, one.Type
		if of.Kind() == reflect.Pointer {
			of = of.Elem()
			if inner.IsValid() {
				inner = inner.Elem() // not valid for nil
			}
		}
		if of.Kind() == reflect.Struct && !isValue(of) {
			walk(of, inner, path+".", found)
			continue
		}
		leaf := field{Path: path, Type: typeName(of)}
		if inner.IsValid() && !inner.IsZero() {
			leaf.Default = inner.Interface()
		}
		*found = append(*found, leaf)
	}
}

var marshaler = reflect.TypeFor[json.Marshaler]()

func isValue(of reflect.Type) bool {
	return of.Implements(marshaler) || reflect.PointerTo(of).Implements(marshaler)
}

func typeName(of reflect.Type) string {
	switch of.Kind() {
	case reflect.Pointer:
		return typeName(of.Elem())
	case reflect.Slice:
		return "[]" + typeName(of.Elem())
	case reflect.Map:
		return "map[" + typeName(of.Key()) + "]" + typeName(of.Elem())
	case reflect.Struct, reflect.Interface:
		return of.Name()
	}
	return of.Kind().String()
}

func flags(set *pflag.FlagSet) []flag {
	var found []flag
	set.VisitAll(func(one *pflag.Flag) {
		found = append(found, flag{one.Name, one.Value.Type(), one.DefValue, one.Deprecated != ""})
	})
	sort.Slice(found, func(i, j int) bool { return found[i].Name < found[j].Name })
	return found
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
