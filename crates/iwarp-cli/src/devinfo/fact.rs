// SPDX-License-Identifier: MIT OR Apache-2.0

//! A property of a device, for people and for programs.

use std::fmt::LowerHex;

use serde_json::{Value, json};

#[derive(Debug)]
pub(super) struct Fact {
    /// The name that `ibv_devinfo` gives it.
    pub(super) name: String,
    /// The text that `ibv_devinfo` shows; further lines are items of a list.
    pub(super) shown: String,
    json: Value,
    /// Set if only `-v` and `--json` show it.
    pub(super) is_detail: bool,
}

impl Fact {
    pub(super) fn new(name: impl Into<String>, shown: impl Into<String>, json: Value) -> Self {
        Self { name: name.into(), shown: shown.into(), json, is_detail: false }
    }

    pub(super) fn text(name: &str, text: &str) -> Self {
        Self::new(name, text, text.into())
    }

    pub(super) fn number(name: &str, number: impl Into<u64>) -> Self {
        let number = number.into();
        Self::new(name, number.to_string(), number.into())
    }

    /// A number whose bits mean something, with `digits` at least.
    pub(super) fn hex<N: LowerHex + Into<u64>>(name: &str, number: N, digits: usize) -> Self {
        let shown = format!("{number:#0width$x}", width = digits + 2);
        Self::new(name, shown, number.into().into())
    }

    /// An enumerator, with the number that C programs know it by.
    pub(super) fn word(name: &str, word: &str, number: u32) -> Self {
        Self::new(name, format!("{word} ({number})"), word.into())
    }

    /// A set of flags, one below the other; before them the number that they make up, if that is
    /// shown.
    pub(super) fn flags(name: &str, number: Option<u32>, flags: &[&str]) -> Self {
        let number = number.map_or_else(String::new, |number| format!("{number:#010x}"));
        let shown = flags.iter().fold(number, |shown, flag| shown + "\n" + flag);
        Self::new(name, shown, json!(flags))
    }

    /// Has only `-v` and `--json` show it.
    pub(super) fn detail(self) -> Self {
        Self { is_detail: true, ..self }
    }

    pub(super) fn into_json(self) -> (String, Value) {
        (self.name, self.json)
    }
}

#[cfg(test)]
mod tests {
    use super::Fact;

    #[test]
    fn values_are_shown_as_ibv_devinfo_does() {
        assert_eq!(Fact::hex("hw_ver", 1_u32, 0).shown, "0x1");
        assert_eq!(Fact::hex("port_cap_flags2", 0_u32, 4).shown, "0x0000");
        assert_eq!(Fact::word("state", "PORT_ACTIVE", 4).shown, "PORT_ACTIVE (4)");
        let flags = Fact::flags("device_cap_flags", Some(0x81), &["A", "B"]);
        assert_eq!(flags.shown, "0x00000081\nA\nB");
        assert_eq!(Fact::flags("rc_odp_caps", None, &["A"]).shown, "\nA");
    }
}
