#include "train/config_choices.h"

#include <type_traits>

#include "train/config_assign.h"
#include "train/config_fields.h"

namespace tessera::train {
namespace {

std::vector<std::string> values_of(const Field&, bool) {
    return {"true", "false"};
}
std::vector<std::string> values_of(const Field&, const LossScale&) {
    return {"dynamic"};
}
std::vector<std::string> values_of(const Field& field, const std::string&) {
    return field.kind == FieldKind::resume_spec ? std::vector<std::string>{"auto", "none"} : std::vector<std::string>();
}
template <typename T>
std::vector<std::string> values_of(const Field&, const T&) {
    std::vector<std::string> values;
    if constexpr (std::is_enum_v<T>) {
        for (const auto& entry : EnumNames<T>::kAll) values.emplace_back(entry.name);
    }
    return values;
}

}  // namespace

std::vector<ConfigChoices> config_choices() {
    std::vector<ConfigChoices> choices;
    const Config defaults;
    for_each_field(defaults, [&](const Field& field, const auto& value) {
        ConfigChoices choice{.name = field.name(), .meaning = std::string(field.doc), .values = {}};
        choice.values = values_of(field, value);
        // The one value that this version knows, as one would type it.
        if (field.availability == Availability::default_only) {
            std::string text = written(value);
            if (text.front() == '"') text = text.substr(1, text.size() - 2);
            choice.values = {text};
        }
        choice.is_path =
                field.kind == FieldKind::path || std::is_same_v<std::decay_t<decltype(value)>, std::vector<DataSource>>;
        choices.push_back(std::move(choice));
    });
    return choices;
}

}  // namespace tessera::train
