// What is built takes libraries from fixed places only, and its table of functions cannot be written while it runs.
#include <gtest/gtest.h>

#include <elf.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

// The dynamic section of a program or a shared library.
struct Dynamic {
    std::vector<std::string> search_paths;  // DT_RPATH and DT_RUNPATH
    bool binds_at_start = false, has_relro = false;
};

template <class Part>
Part part_at(const std::string& file, std::size_t offset) {
    Part part{};
    if (offset + sizeof part <= file.size())
        std::memcpy(&part, file.data() + offset, sizeof part);
    return part;
}

// The offset in the file of an address of the loaded program.
std::size_t offset_of(const std::vector<Elf64_Phdr>& segments, Elf64_Addr address) {
    for (const Elf64_Phdr& segment : segments)
        if (segment.p_type == PT_LOAD && address >= segment.p_vaddr && address < segment.p_vaddr + segment.p_filesz)
            return segment.p_offset + (address - segment.p_vaddr);
    return std::string::npos;
}

Dynamic read_dynamic(const std::string& file, const std::vector<Elf64_Phdr>& segments, const Elf64_Phdr& section) {
    Dynamic dynamic;
    std::vector<std::size_t> names;
    std::size_t texts = std::string::npos;
    for (std::size_t at = section.p_offset; at + sizeof(Elf64_Dyn) <= section.p_offset + section.p_filesz;
         at += sizeof(Elf64_Dyn)) {
        const auto entry = part_at<Elf64_Dyn>(file, at);
        if (entry.d_tag == DT_STRTAB)
            texts = offset_of(segments, entry.d_un.d_ptr);
        else if (entry.d_tag == DT_RPATH || entry.d_tag == DT_RUNPATH)
            names.push_back(entry.d_un.d_val);
        else if (entry.d_tag == DT_BIND_NOW || (entry.d_tag == DT_FLAGS && (entry.d_un.d_val & DF_BIND_NOW) != 0) ||
                 (entry.d_tag == DT_FLAGS_1 && (entry.d_un.d_val & DF_1_NOW) != 0))
            dynamic.binds_at_start = true;
    }
    for (const std::size_t name : names)
        dynamic.search_paths.emplace_back(file.c_str() + texts + name);
    return dynamic;
}

// Absent if the file is neither a program nor a shared library.
std::optional<Dynamic> dynamic_of(const fs::path& path) {
    std::ifstream stream(path, std::ios::binary);
    std::string head(sizeof(Elf64_Ehdr), '\0');
    stream.read(head.data(), static_cast<std::streamsize>(head.size()));
    const auto header = part_at<Elf64_Ehdr>(head, 0);
    if (!stream || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
        (header.e_type != ET_EXEC && header.e_type != ET_DYN))
        return std::nullopt;
    std::ostringstream rest;
    rest << stream.rdbuf();
    const std::string file = head + rest.str();
    std::vector<Elf64_Phdr> segments;
    for (std::size_t k = 0; k < header.e_phnum; ++k)
        segments.push_back(part_at<Elf64_Phdr>(file, header.e_phoff + k * sizeof(Elf64_Phdr)));
    std::optional<Dynamic> found;
    bool has_relro = false;
    for (const Elf64_Phdr& segment : segments) {
        if (segment.p_type == PT_DYNAMIC)
            found = read_dynamic(file, segments, segment);
        has_relro |= segment.p_type == PT_GNU_RELRO;
    }
    if (found)
        found->has_relro = has_relro;
    return found;
}

// The programs, libraries and modules of the build; not what is installed from it, and no packages of Python.
std::vector<fs::path> binaries() {
    std::vector<fs::path> found;
    for (const char* folder : {"bin", "lib", "python", "tests", "bench"}) {
        std::error_code none;
        for (auto entry = fs::recursive_directory_iterator(fs::path(PIPEWRIGHT_BUILD_DIR) / folder, none);
             entry != fs::recursive_directory_iterator(); ++entry) {
            const std::string name = entry->path().filename().string();
            if (entry->is_directory() && (name == "CMakeFiles" || name == "install" || name == "wheel"))
                entry.disable_recursion_pending();
            else if (entry->is_regular_file() && !entry->is_symlink() && !name.ends_with(".a") && !name.ends_with(".o"))
                found.push_back(entry->path());
        }
    }
    return found;
}

// An empty element is the current folder: a library that lies there would be run.
TEST(Binaries, TakeNoLibraryFromTheCurrentFolder) {
    int read = 0;
    for (const fs::path& path : binaries()) {
        const std::optional<Dynamic> dynamic = dynamic_of(path);
        if (!dynamic)
            continue;
        ++read;
        for (const std::string& paths : dynamic->search_paths)
            for (std::size_t begin = 0; begin <= paths.size();) {
                const std::size_t end = std::min(paths.find(':', begin), paths.size());
                const std::string element = paths.substr(begin, end - begin);
                EXPECT_TRUE(element.starts_with("/") || element.starts_with("$ORIGIN"))
                    << path << " has the element '" << element << "' in " << paths;
                begin = end + 1;
            }
    }
    EXPECT_GE(read, 1) << "no program in " << PIPEWRIGHT_BUILD_DIR;
}

TEST(Binaries, TheProgramBindsItsFunctionsAtItsStart) {
    const fs::path program = fs::path(PIPEWRIGHT_BUILD_DIR) / "bin" / "pipewright";
    if (!fs::exists(program))
        GTEST_SKIP() << "the program is not built";
    const std::optional<Dynamic> dynamic = dynamic_of(program);
    ASSERT_TRUE(dynamic);
    EXPECT_TRUE(dynamic->binds_at_start);
    EXPECT_TRUE(dynamic->has_relro);
}

}  // namespace
