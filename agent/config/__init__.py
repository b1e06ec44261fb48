"""Reads the kubelet's flags and KubeletConfiguration files (v1beta1) into the agent's Settings.

Upstream's counterpart: cmd/kubelet/app/options, pkg/kubelet/apis/config and pkg/kubelet/kubeletconfig. Start with
parse.py. Every field is in schema.py, every flag in flags.py, how a flag's value is read in flag_values.py; the setting
made from a field is where the field's name stands in a `config("...")` annotation: in agent/settings.py or in the model
of the room that obeys it.
"""
