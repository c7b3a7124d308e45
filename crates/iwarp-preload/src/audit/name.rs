// SPDX-License-Identifier: MIT OR Apache-2.0

//! The files that are ours to replace.

/// A library that programs bring along.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Library {
    /// `libibverbs.so.1`
    Verbs,
    /// `librdmacm.so.1`
    Cm,
}

impl Library {
    /// The library that the file of this path is a copy of.
    ///
    /// These are `libibverbs.so`, `libibverbs.so.1`, `libibverbs.so.1.14.48.0`, and what tools that
    /// bundle libraries make of them: `libibverbs-1a2b3c4d.so.1.14.48.0`.
    pub(crate) fn of(path: &[u8]) -> Option<Self> {
        let name = behind_last_slash(path);
        if let Some(rest) = strip(name, b"libibverbs") {
            is_copy(rest).then_some(Self::Verbs)
        } else if let Some(rest) = strip(name, b"librdmacm") {
            is_copy(rest).then_some(Self::Cm)
        } else {
            None
        }
    }
}

/// True if this follows the name of a library: a digest or nothing, `.so`, and a version or
/// nothing.
fn is_copy(mut rest: &[u8]) -> bool {
    if let Some(digest) = strip(rest, b"-") {
        rest = digest;
        while let [b'0'..=b'9' | b'a'..=b'f', next @ ..] = rest {
            rest = next;
        }
    }
    matches!(strip(rest, b".so"), Some([] | [b'.', ..]))
}

fn behind_last_slash(path: &[u8]) -> &[u8] {
    let (mut name, mut rest) = (path, path);
    while let [first, next @ ..] = rest {
        if *first == b'/' {
            name = next;
        }
        rest = next;
    }
    name
}

/// The text behind `prefix`. (`slice::strip_prefix` may call `memcmp`.)
fn strip<'a>(mut text: &'a [u8], mut prefix: &[u8]) -> Option<&'a [u8]> {
    while let [expected, others @ ..] = prefix {
        match text {
            [first, rest @ ..] if first == expected => (text, prefix) = (rest, others),
            _ => return None,
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::Library;

    #[test]
    fn all_names_of_the_two_libraries_are_known() {
        for (name, library) in [
            ("libibverbs.so.1", Library::Verbs),
            ("libibverbs.so", Library::Verbs),
            ("/usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0", Library::Verbs),
            ("libibverbs-1a2b3c4d.so.1.14.48.0", Library::Verbs),
            ("/venv/lib/x.libs/libibverbs-98051ef4.so.1.8.22.4", Library::Verbs),
            ("librdmacm.so.1", Library::Cm),
            ("/venv/lib/x.libs/librdmacm-ea0a6d0b.so.1.2.22.4", Library::Cm),
        ] {
            assert_eq!(Library::of(name.as_bytes()), Some(library), "{name}");
        }
    }

    #[test]
    fn other_libraries_are_left_alone() {
        for name in [
            "",
            "/",
            "libibverbs",
            "libibverbs/",
            "libibverbs.so.1/libc.so.6",
            "libibverbs.sock",
            "libibverbs-stub.so.1",
            "libibverbsx.so",
            "libmlx5.so.1",
            "libmlx5-rdmav34.so",
            "/usr/lib/libibverbs/libmlx5-rdmav34.so",
            "librdmacm-1.txt",
            "xlibrdmacm.so.1",
        ] {
            assert_eq!(Library::of(name.as_bytes()), None, "{name}");
        }
    }
}
