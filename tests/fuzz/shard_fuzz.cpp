// Any bytes as a token shard: refused with a DataError or an EnvironmentError, or every token can be read. HDF5 breaks
// on some damaged files by itself, so each input goes through a child process first; one that ends the child is passed
// over if a second child, in which the library reads the file without us, ends the same way.
#include <hdf5.h>

#include <algorithm>
#include <array>

#include "core/error.h"
#include "data/shard.h"
#include "fuzz/scratch_file.h"
#include "fuzz/second_process.h"

namespace {

/// A sparse shard may claim more tokens than anyone wants to read.
constexpr std::int64_t kMostTokens = std::int64_t{1} << 16;

void read_everything(const tessera::data::ShardReader& shard) {
    using namespace tessera;
    const std::int64_t count = std::min(shard.num_tokens(), kMostTokens);
    for (const std::int64_t first : {std::int64_t{0}, shard.num_tokens() - count}) {
        std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
        shard.read(first, tokens, shard.identity().vocab_size.value_or(1 << 30));
    }
    if (!shard.has_document_offsets()) return;
    const data::TokenPlace last = shard.place_of(shard.num_tokens() - 1);
    fuzz::require(last.document >= 0 && last.document <= shard.num_documents(), "a token stands in a document");
    if (shard.num_documents() <= kMostTokens) shard.document_starts(0, shard.num_tokens());
}

void read_shard(const std::string& path) {
    using namespace tessera;
    try {
        const std::vector<data::ShardReader> shards = data::open_shards({path}, {});
        fuzz::require(shards.size() == 1 && shards[0].num_tokens() > 0, "a shard holds tokens");
        try {
            read_everything(shards[0]);
        } catch (const core::DataError&) {
        }
        if (shards[0].num_tokens() <= kMostTokens && shards[0].num_documents() <= kMostTokens) shards[0].check();
    } catch (const core::DataError&) {
    } catch (const core::EnvironmentError&) {
    }
}

void let_library_read_dataset(hid_t file, const char* name) {
    const hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
    if (dataset < 0) return;
    const hid_t space = H5Dget_space(dataset);
    std::array<hsize_t, 32> extent{};
    const int dimensions = H5Sget_simple_extent_ndims(space);
    const bool is_list = dimensions == 1 || dimensions == 2;
    if (is_list) H5Sget_simple_extent_dims(space, extent.data(), nullptr);
    const hsize_t columns = dimensions == 2 ? extent[1] : 1;
    if (is_list && extent[0] <= kMostTokens && columns <= kMostTokens && extent[0] * columns <= kMostTokens) {
        std::vector<std::int64_t> values(extent[0] * columns);
        if (!values.empty()) H5Dread(dataset, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
    } else if (is_list) {
        // The first and the last elements of what is too long.
        const std::array<hsize_t, 2> count = {std::min<hsize_t>(extent[0], dimensions == 2 ? 1 : kMostTokens),
                                              std::min<hsize_t>(columns, kMostTokens)};
        std::vector<std::int64_t> values(count[0] * count[1]);
        const hid_t memory = H5Screate_simple(dimensions, count.data(), nullptr);
        for (const bool at_end : {false, true}) {
            const std::array<hsize_t, 2> start = {at_end ? extent[0] - count[0] : 0, at_end ? columns - count[1] : 0};
            H5Sselect_hyperslab(space, H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr);
            H5Dread(dataset, H5T_NATIVE_INT64, memory, space, H5P_DEFAULT, values.data());
        }
        H5Sclose(memory);
    }
    H5Sclose(space);
    H5Dclose(dataset);
}

/// What the reader asks of the library, asked by nobody but the library's own calls.
void let_library_read(const std::string& path) {
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
    if (file < 0) return;
    for (const char* name : {"tokens", "input_ids", "document_offsets"}) {
        if (H5Lexists(file, name, H5P_DEFAULT) > 0) let_library_read_dataset(file, name);
    }
    for (const char* name :
         {"format_version", "vocab_size", "eod_id", "tokenizer_sha256", "text_bytes", "tokens_xxh64"}) {
        if (H5Aexists(file, name) <= 0) continue;
        const hid_t attribute = H5Aopen(file, name, H5P_DEFAULT);
        if (attribute < 0) continue;
        const hid_t type = H5Aget_type(attribute);
        const hid_t space = H5Aget_space(attribute);
        const auto points = static_cast<std::size_t>(std::max<hssize_t>(H5Sget_simple_extent_npoints(space), 1));
        const std::size_t size = H5Tget_size(type);
        if (points < kMostTokens && size < kMostTokens) {
            std::vector<char> value(points * std::max<std::size_t>(size, sizeof(std::int64_t)));
            if (H5Tget_class(type) == H5T_INTEGER) H5Aread(attribute, H5T_NATIVE_INT64, value.data());
            if (H5Tget_class(type) == H5T_STRING) H5Aread(attribute, type, value.data());
        }
        H5Sclose(space);
        H5Tclose(type);
        H5Aclose(attribute);
    }
    H5Fclose(file);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using tessera::fuzz::SecondProcess;
    const tessera::fuzz::ScratchFile scratch(data, size, ".h5");
    static SecondProcess with_reader(read_shard, scratch.path());
    if (!with_reader.survives() && !SecondProcess(let_library_read, scratch.path()).survives()) {
        static std::int64_t passed_over = 0;
        std::printf("passed over %lld: the library alone breaks on it\n", static_cast<long long>(++passed_over));
        return 0;
    }
    read_shard(scratch.path());
    return 0;
}
