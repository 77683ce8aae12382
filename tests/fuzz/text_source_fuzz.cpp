// Any bytes as a corpus; the first byte chooses plain text or JSON lines and how strict the reader is: refused with a
// DataError, or a list of documents in valid UTF-8 that the counts agree with.
#include "core/error.h"
#include "data/text_source.h"
#include "fuzz/scratch_file.h"

namespace {

tessera::data::TextSourceArgs args_for(std::uint8_t choice, const std::string& path) {
    using namespace tessera::data;
    static const char* const kSeparators[] = {"\n\n", "", "\n", "<|endoftext|>"};
    return {.paths = {path},
            .format = (choice & 1) != 0 ? TextFormat::jsonl : TextFormat::text,
            .separator = kSeparators[choice >> 1 & 3],
            .text_key = "text",
            .invalid_utf8 = (choice & 8) != 0 ? InvalidUtf8::refuse : InvalidUtf8::replace,
            .malformed_jsonl = (choice & 16) != 0 ? MalformedJsonl::refuse : MalformedJsonl::skip};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace tessera;
    if (size == 0) return 0;
    const fuzz::ScratchFile scratch(data + 1, size - 1, ".txt");
    try {
        data::TextSource source(args_for(data[0], scratch.path()));
        std::string document;
        std::int64_t documents = 0;
        std::int64_t bytes = 0;
        while (source.next(document)) {
            ++documents;
            bytes += static_cast<std::int64_t>(document.size());
            fuzz::require(!data::is_blank(document), "no document is blank");
            data::Utf8Repair repair;
            std::string repaired;
            repair.append(document, repaired);
            repair.finish(repaired);
            fuzz::require(repair.replaced() == 0 && repaired == document, "a document is valid UTF-8");
        }
        fuzz::require(documents == source.counts().documents, "the documents are counted");
        fuzz::require(bytes == source.counts().text_bytes, "their bytes are counted");
        fuzz::require(source.bytes_read() == static_cast<std::int64_t>(size) - 1, "everything was read");
    } catch (const core::DataError&) {
    }
    return 0;
}
