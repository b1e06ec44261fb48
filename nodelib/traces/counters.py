"""Names and texts of what counts exported spans, in every daemon alike."""

EXPORTED = ("nodewright_traces_spans_exported", "Cumulative number of spans that a collector has taken")
DROPPED = ("nodewright_traces_spans_dropped", "Cumulative number of spans that no collector has taken, by reason")
