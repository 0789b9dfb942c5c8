// Traces to pictures and text. The suffix of the file chooses: svg, png, pdf (gnuplot), html (one
// self-contained page), txt (grid), json (Chrome trace).
#pragma once

#include "schedules/trace.h"

#include <string>
#include <vector>

namespace pw {

struct Panel {
    const Trace* trace;
    std::string title;  // "predicted, 1f1b: step 812.3 ms, bubble 11.2 %"
};

// Panels one above the other on one time axis: one row per device, tasks coloured by operation with
// the micro-batch number, transfers as thin lanes below, weight versions where there are several,
// memory curves at the bottom. Writes FILE, and for gnuplot FILE.gp and FILE.dat beside it.
void plot(const std::vector<Panel>& panels, const std::string& file);

// svg, png and pdf need it.
bool has_gnuplot();

// What plot() writes to a .txt file: a grid for the terminal.
std::string text_of(const std::vector<Panel>& panels);

// Loss by step of one or more runs. Values that are not finite leave a gap.
struct Curve {
    std::string title;
    std::vector<double> values;
};
void plot_curves(const std::vector<Curve>& curves, const std::string& x_label, const std::string& y_label,
                 const std::string& file);

}  // namespace pw
