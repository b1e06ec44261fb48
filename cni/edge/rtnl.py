"""The classes of rtnetlink's messages, which are pyroute2's."""

from __future__ import annotations

from nodelib.netlink.pyroute2_parts import part

nlmsg, nlmsgerr = part("netlink").nlmsg, part("netlink").nlmsgerr
ifaddrmsg = part("netlink.rtnl.ifaddrmsg").ifaddrmsg
ifinfmsg = part("netlink.rtnl.ifinfmsg").ifinfmsg
ndmsg = part("netlink.rtnl.ndmsg").ndmsg
rtmsg = part("netlink.rtnl.rtmsg").rtmsg
