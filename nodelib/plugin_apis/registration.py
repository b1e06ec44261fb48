"""How a plugin registers with a kubelet: pluginregistration/v1 of k8s.io/kubelet (pkg/apis)."""

from __future__ import annotations

from nodelib.plugin_apis.wire import Api

REGISTRATION = Api(
    "pluginregistration",
    """
    InfoRequest:
    PluginInfo: type string, name string, endpoint string, supported_versions [string]
    RegistrationStatus: plugin_registered bool, error string
    RegistrationStatusResponse:
    rpc Registration.GetInfo InfoRequest PluginInfo
    rpc Registration.NotifyRegistrationStatus RegistrationStatus RegistrationStatusResponse
    """,
)
