// SPDX-License-Identifier: MIT OR Apache-2.0

//! JSON objects (RFC 8259), written member by member.

use std::fmt::{Display, Write as _};

use super::json::add_text;

/// An object that is being written.
#[derive(Debug)]
pub(crate) struct Object {
    text: String,
}

impl Object {
    pub(crate) fn new() -> Self {
        Self { text: "{".to_owned() }
    }

    fn name(&mut self, name: &str) {
        if self.text.len() > 1 {
            self.text.push(',');
        }
        add_text(&mut self.text, name);
        self.text.push(':');
    }

    /// Adds a number.
    pub(crate) fn number(&mut self, name: &str, value: impl Into<u64>) {
        self.raw(name, value.into());
    }

    /// Adds a count.
    pub(crate) fn count(&mut self, name: &str, value: usize) {
        self.raw(name, value);
    }

    pub(crate) fn flag(&mut self, name: &str, value: bool) {
        self.raw(name, value);
    }

    /// Adds the text that the value is shown as.
    pub(crate) fn text(&mut self, name: &str, value: impl Display) {
        self.name(name);
        add_text(&mut self.text, &value.to_string());
    }

    /// Adds an object that `fill` writes.
    pub(crate) fn object(&mut self, name: &str, fill: impl FnOnce(&mut Self)) {
        let mut inner = Self::new();
        fill(&mut inner);
        self.raw(name, inner.end());
    }

    /// Adds a list of objects.
    pub(crate) fn list(&mut self, name: &str, objects: impl IntoIterator<Item = Self>) {
        self.name(name);
        self.text.push('[');
        for (number, object) in objects.into_iter().enumerate() {
            if number > 0 {
                self.text.push(',');
            }
            self.text.push_str(&object.end());
        }
        self.text.push(']');
    }

    /// Adds a value that is JSON as it is shown.
    fn raw(&mut self, name: &str, value: impl Display) {
        self.name(name);
        // Writing to memory does not fail.
        let _ = write!(self.text, "{value}");
    }

    /// The whole.
    pub(crate) fn end(mut self) -> String {
        self.text.push('}');
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_all_kinds() {
        assert_eq!(Object::new().end(), "{}");
        let mut object = Object::new();
        object.number("n", 7_u32);
        object.flag("f", true);
        object.text("t", "a \"b\"\n");
        object.object("o", |inner| inner.count("c", 1));
        object.list("l", [Object::new(), Object::new()]);
        let text = object.end();
        assert_eq!(text, r#"{"n":7,"f":true,"t":"a \"b\"\n","o":{"c":1},"l":[{},{}]}"#);
        assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
    }
}
