// SPDX-License-Identifier: MIT OR Apache-2.0

//! The kinds of files that `cargo xtask dist` makes, and the programs that each needs.

use anyhow::{Result, anyhow};

use super::standalone;
use crate::packages::{self, Tool};

/// A file for users, or two.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Product {
    /// The command and the libraries, to unpack anywhere
    Tarball,
    /// The Debian package, and that of its debug symbols
    Deb,
    /// The RPM package
    Rpm,
    /// The command alone, linked statically (on x86-64)
    Static,
}

impl Product {
    pub(crate) const ALL: &[Self] = &[Self::Tarball, Self::Deb, Self::Rpm, Self::Static];
}

/// Programs that no product can do without.
const ALWAYS: &[&str] = &["git", "readelf", "strip", "tar", "gzip"];

/// Other programs of the step `dist`, what they are for, and if only for the trial.
const FOR: &[(&str, &[Product], bool)] = &[
    ("dpkg-deb", &[Product::Deb], false),
    ("ibv_devices", &[Product::Tarball, Product::Deb, Product::Rpm], true),
    ("rpm", &[Product::Rpm], true),
    ("rpm2cpio", &[Product::Rpm], true),
    ("cpio", &[Product::Rpm], true),
];

/// Looks for all that making and trying `products` needs, before a build that takes minutes.
///
/// # Errors
///
/// When something is missing that cannot be installed here; the text names packages and options.
pub(super) fn ensure_tools(products: &[Product], tried: bool) -> Result<()> {
    let needs = |tool: &&Tool| is_needed(tool.program, products, tried);
    let found = packages::ensure_tools(packages::TOOLS.iter().filter(needs));
    found.map_err(|error| anyhow!("{error:#}{}", fewer(products, tried)))?;
    if products.contains(&Product::Static) { standalone::ensure_target() } else { Ok(()) }
}

/// The options by which a build of `products` needs fewer programs, for the end of a message.
fn fewer(products: &[Product], tried: bool) -> String {
    let others = products.iter().any(|product| *product != Product::Tarball);
    let options = [(others, "--only tarball"), (tried, "--untried")];
    let options: Vec<&str> =
        options.into_iter().filter_map(|(helps, option)| helps.then_some(option)).collect();
    match options.is_empty() {
        true => String::new(),
        false => format!("\ncargo xtask dist {} needs fewer programs", options.join(" ")),
    }
}

fn is_needed(program: &str, products: &[Product], tried: bool) -> bool {
    let listed = FOR.iter().any(|(name, of, trial_only)| {
        let wanted = of.iter().any(|product| products.contains(product));
        *name == program && wanted && (tried || !trial_only)
    });
    listed || ALWAYS.contains(&program)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A runner without RDMA packages can make the tarball.
    #[test]
    fn an_untried_tarball_needs_common_tools_only() {
        let needed = |program| is_needed(program, &[Product::Tarball], false);
        assert!(needed("strip") && needed("tar"));
        assert!(!needed("ibv_devices") && !needed("rpm") && !needed("dpkg-deb"));
        assert!(is_needed("rpm2cpio", Product::ALL, true));
        assert!(!is_needed("rpm2cpio", Product::ALL, false));
    }

    #[test]
    fn a_message_names_the_options_that_help() {
        let all = fewer(Product::ALL, true);
        assert_eq!(all, "\ncargo xtask dist --only tarball --untried needs fewer programs");
        assert!(!fewer(&[Product::Tarball], true).contains("--only"));
        assert!(!fewer(Product::ALL, false).contains("--untried"));
        assert_eq!(fewer(&[Product::Tarball], false), "");
    }

    /// Each program is one that a Debian package is known for.
    #[test]
    fn each_program_has_a_package() {
        let names = ALWAYS.iter().chain(FOR.iter().map(|(name, ..)| name));
        for name in names {
            let known = packages::TOOLS.iter().find(|tool| tool.program == *name);
            let known = known.unwrap_or_else(|| panic!("{name} is not in packages.rs"));
            assert!(known.steps.contains(&"dist"), "{name} is not of the step dist");
        }
    }
}
