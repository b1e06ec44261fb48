// Compiled by itself, this prints, as JSON, how a Pod of the linked Kubernetes modules is encoded in protobuf: each message
// with its fields, as nodelib/plugin_apis/wire.py reads them, and which fields have no name of their own in JSON. Nothing is
// read from sources: it asks the types, and the tags that upstream's generated code was made from.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Types whose code is written by hand: their tags do not tell how they are encoded.
var byHand = map[reflect.Type]string{
	reflect.TypeOf(resource.Quantity{}):  "Quantity: string string @1",
	reflect.TypeOf(metav1.Time{}):        "Time: seconds int64 @1, nanos int32 @2",
	reflect.TypeOf(intstr.IntOrString{}): "IntOrString: type int32 @1, intVal int32 @2, strVal string @3",
	reflect.TypeOf(metav1.FieldsV1{}):    "FieldsV1: Raw bytes @1",
}

type found struct {
	Messages []string `json:"messages"`
	Inline   []string `json:"inline"`
	types    map[string]reflect.Type
}

func main() {
	all := found{types: map[string]reflect.Type{}}
	all.message(reflect.TypeOf(v1.Pod{}))
	sort.Strings(all.Messages)
	sort.Strings(all.Inline)
	if err := json.NewEncoder(os.Stdout).Encode(all); err != nil {
		panic(err)
	}
}

func (all *found) message(t reflect.Type) string {
	if known, ok := all.types[t.Name()]; ok {
		if known != t {
			panic(fmt.Sprintf("two messages are called %s", t.Name()))
		}
		return t.Name()
	}
	all.types[t.Name()] = t
	if line, ok := byHand[t]; ok {
		all.Messages = append(all.Messages, line)
		return t.Name()
	}
	var fields []string
	for i := 0; i < t.NumField(); i++ {
		if field := t.Field(i); field.Tag.Get("protobuf") != "" {
			fields = append(fields, all.field(t, field))
		}
	}
	all.Messages = append(all.Messages, t.Name()+": "+strings.Join(fields, ", "))
	return t.Name()
}

func (all *found) field(owner reflect.Type, field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	if name == "" {
		name = strings.ToLower(field.Name[:1]) + field.Name[1:]
		all.Inline = append(all.Inline, owner.Name()+"."+name)
	}
	number := strings.Split(field.Tag.Get("protobuf"), ",")[1]
	return fmt.Sprintf("%s %s @%s", name, all.kind(field.Type), number)
}

func (all *found) kind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return all.kind(t.Elem())
	case reflect.Map:
		return "{" + all.kind(t.Elem()) + "}"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		return "[" + all.kind(t.Elem()) + "]"
	case reflect.Struct:
		return all.message(t)
	case reflect.Int:
		return "int64"
	default:
		return t.Kind().String()
	}
}
