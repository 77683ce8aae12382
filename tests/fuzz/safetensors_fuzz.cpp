// Any bytes as a safetensors file: refused with a CheckpointError, or every tensor lies inside the file.
#include "core/error.h"
#include "fuzz/scratch_file.h"
#include "train/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace tessera;
    const fuzz::ScratchFile scratch(data, size, ".safetensors");
    try {
        const train::SafetensorsFile file(scratch.path());
        std::int64_t bytes = static_cast<std::int64_t>(file.header().size());
        unsigned sum = 0;
        for (const train::SafetensorsEntry& entry : file.entries()) {
            fuzz::require(file.find(entry.name) == &entry, "a tensor is found by its name");
            const std::span<const std::byte> content = file.data(entry);
            fuzz::require(entry.shape.numel() * core::size_of(entry.dtype) == entry.end - entry.begin,
                          "shape and dtype give the bytes");
            bytes += static_cast<std::int64_t>(content.size());
            for (const std::byte each : content) sum += std::to_integer<unsigned>(each);
        }
        fuzz::require(bytes == static_cast<std::int64_t>(size), "header and tensors are all of the file");
        return sum == 0xFFFFFFFFU ? 1 : 0;
    } catch (const core::CheckpointError&) {
        return 0;
    }
}
