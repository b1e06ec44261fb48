"""Connections of clients that nobody knows yet: how many there are, how long they may take, how much they may send.

Everybody who reaches the port may connect, so that whatever is kept before a request is authorized must be bounded.
Upstream's kubelet takes 1 MiB of head from each client for as long as it likes (server.go sets MaxHeaderBytes and a
ReadTimeout of four hours) and counts no connections. Here a connection hands one head at a time to the HTTP parser,
within ten seconds, and what follows the head waits until the request is authorized; of the connections without an
authorized request the oldest gives way to a new one, once it has had a fair time. That time is short while many wait
for being accepted, and of too many those that have said nothing by then are not served: an honest client has spoken.

`limits.py` has how many and how much, `gate.py` accepts them and makes room, `connection.py` is one client,
`middlewares.py` tells both when a request begins, is authorized and has its answer.
"""
