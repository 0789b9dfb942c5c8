// Folders of traces: a file for each rank.
#pragma once

#include <string>
#include <vector>

namespace pw {

// Replaces each folder among the paths by the files of its ranks: files of TensorBoard's plug-in (*.pt.trace.json, also
// compressed) if there are any, otherwise *.json, *.et of Chakra, both also compressed, or workerlog.N of Paddle, in
// the order of their names. TensorBoard's files are named WORKER.TIME.pt.trace.json. If a worker has several files, for
// several cycles of the profiler, the last file counts, and a note says so. Throws Error (BadInput) for a folder
// without such files.
std::vector<std::string> with_files_of_folders(const std::vector<std::string>& paths, std::vector<std::string>& notes);

// tensorboard_trace_handler calls a worker HOST_PROCESS. Returns the host in the name of such a file, empty for a name
// of another form.
std::string host_of_worker(const std::string& path);

}  // namespace pw
