// Panels of plots: traces, their metrics and limits, and why their devices are idle.
#pragma once

#include "report/report.h"
#include "sim/explanation.h"
#include "viz/plot.h"

#include <string>

namespace pw {

// Returns the panel of a trace that is `report.trace` or a part of it, and must outlive the panel.
Panel panel_of(const Report& report, const Trace& drawn);

// Adds causes of idle time, critical path, slack and their tables to the panel of a predicted trace, whose events are
// the nodes of the explanation.
void add_explanation(Panel& panel, const Explanation& explanation);

// Does the same for any trace, from its own times. Critical path and slack come from its replay. `whole` is one step,
// or an asynchronous run, of which the panel may show a part. Adds nothing if the plan of the trace is not known.
void explain_trace(Panel& panel, const Trace& whole);

// Returns panel_of() the report and the trace, explained if plots to `file` show causes.
Panel drawn_panel(const Report& report, const Trace& drawn, const std::string& file);

}  // namespace pw
