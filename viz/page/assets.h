// Scripts and styles of pages: the text of files of this folder and of Chart.js, embedded by the build.
#pragma once

#include <string_view>

namespace pw {

extern const std::string_view kPageStyle;
extern const std::string_view kTimelineStyle;
extern const std::string_view kTimelineBody;
extern const std::string_view kTimelineScript;
extern const std::string_view kChartStyle;
extern const std::string_view kChartScript;
extern const std::string_view kChartLibrary;

}  // namespace pw
