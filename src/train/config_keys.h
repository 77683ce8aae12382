#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace tessera::train {

/// The least number of insertions, deletions, replacements and swaps of neighbours that turn a into b.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// What to say about a key that does not exist: " (did you mean optimizer.lr?)", the keys of its section, or the
/// sections. Knows what other programs call these settings.
std::string suggestion_for(std::string_view section, std::string_view key);

/// True for settings that a later version will have.
bool is_planned_key(std::string_view section, std::string_view key);

std::vector<std::string> section_names();

}  // namespace tessera::train
