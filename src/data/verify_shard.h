#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/shard.h"
#include "data/tokenizer.h"

namespace tessera::data {

/// One fault of a shard, or a run of faulty tokens side by side.
struct ShardFault {
    std::int64_t document = -1;  ///< -1: unknown, or the fault belongs to no document
    std::int64_t offset = -1;    ///< tokens from the start of the document; -1 as above
    std::int64_t token = -1;     ///< tokens from the start of the shard; -1 as above
    std::string what;
};

/// "document 3, offset 5 (token 17 of the shard): WHAT", as far as the place is known.
std::string to_string(const ShardFault& fault);

struct VerifyShardArgs {
    std::string path = {};
    ShardNames names = {};
    /// If given: the shard must have been made with it.
    const Tokenizer* tokenizer = nullptr;
    /// Called for every fault, in the order in which they are found.
    std::function<void(const ShardFault&)> on_fault = {};
};

struct ShardReport {
    std::int64_t num_tokens = 0;
    /// -1 if the shard does not say where documents start.
    std::int64_t num_documents = -1;
    std::int64_t num_faults = 0;
    /// "WHAT: WHY" for everything the shard does not hold what is needed for.
    std::vector<std::string> not_checked;
};

/// Reads a shard whole and reports all that is wrong with it, where ShardReader::check() stops at the first fault:
///   the file opens, and holds tokens that can be read to the end;
///   every id lies in [0, vocab_size) (the tokenizer's, if the shard does not name one);
///   the checksum of the tokens is the stored one;
///   document offsets ascend from 0 to the number of tokens;
///   in shards of gpt_data each document ends in its only end-of-document token;
///   document_bytes are as many as the documents and add up to text_bytes;
///   vocabulary, end-of-document id and SHA-256 are the tokenizer's.
/// Of shards that others wrote it checks what they hold. Throws nothing for a bad shard.
ShardReport verify_shard(const VerifyShardArgs& args);

}  // namespace tessera::data
