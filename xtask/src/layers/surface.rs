// SPDX-License-Identifier: MIT OR Apache-2.0

//! The view that programs have of the library: no public item of it names a type of the protocol
//! crate, which they do not get.

use syn::visit::{self, Visit};
use syn::{ImplItem, Item, UseTree, Visibility};

/// The crate that programs do not get.
const HIDDEN: &str = "iwarp_proto";

/// Lines of the file that tell programs of a type of [`HIDDEN`].
pub(super) fn leaks(file: &str, text: &str) -> syn::Result<Vec<String>> {
    let parsed = syn::parse_file(text)?;
    let mut imported = Vec::new();
    let mut found = Vec::new();
    for item in &parsed.items {
        if let Item::Use(item) = item {
            let mut names = Vec::new();
            collect(&item.tree, false, &mut names);
            if is_public(&item.vis) && !names.is_empty() {
                found.push(format!("{file}: passes on {} of {HIDDEN}", names.join(", ")));
            }
            imported.extend(names);
        }
    }
    for item in &parsed.items {
        let mut seen = Signatures { imported: &imported, named: Vec::new() };
        seen.look_at(item);
        found.extend(seen.named.iter().map(|name| format!("{file}: public {name} of {HIDDEN}")));
    }
    Ok(found)
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Names that a `use` brings from the hidden crate.
fn collect(tree: &UseTree, inside: bool, names: &mut Vec<String>) {
    match tree {
        UseTree::Path(path) => collect(&path.tree, inside || path.ident == HIDDEN, names),
        UseTree::Group(group) => group.items.iter().for_each(|tree| collect(tree, inside, names)),
        UseTree::Name(name) if inside => names.push(name.ident.to_string()),
        UseTree::Rename(name) if inside => names.push(name.rename.to_string()),
        UseTree::Glob(_) if inside => names.push("*".to_owned()),
        _ => {}
    }
}

/// Types that the public parts of an item name.
struct Signatures<'a> {
    imported: &'a [String],
    named: Vec<String>,
}

impl Signatures<'_> {
    fn look_at(&mut self, item: &Item) {
        match item {
            Item::Struct(item) if is_public(&item.vis) => {
                item.fields.iter().filter(|field| is_public(&field.vis)).for_each(|field| {
                    self.visit_type(&field.ty);
                });
            }
            Item::Enum(item) if is_public(&item.vis) => {
                item.variants.iter().for_each(|variant| self.visit_fields(&variant.fields));
            }
            Item::Trait(item) if is_public(&item.vis) => visit::visit_item_trait(self, item),
            Item::Type(item) if is_public(&item.vis) => self.visit_type(&item.ty),
            Item::Const(item) if is_public(&item.vis) => self.visit_type(&item.ty),
            Item::Fn(item) if is_public(&item.vis) => self.visit_signature(&item.sig),
            Item::Impl(item) if item.trait_.is_none() => {
                for item in &item.items {
                    match item {
                        ImplItem::Fn(item) if is_public(&item.vis) => {
                            self.visit_signature(&item.sig);
                        }
                        ImplItem::Const(item) if is_public(&item.vis) => self.visit_type(&item.ty),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
}

impl<'ast> Visit<'ast> for Signatures<'_> {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        if let Some(first) = path.segments.first()
            && (first.ident == HIDDEN || self.imported.iter().any(|name| first.ident == name))
        {
            let names: Vec<_> = path.segments.iter().map(|part| part.ident.to_string()).collect();
            self.named.push(names.join("::"));
        }
        visit::visit_path(self, path);
    }

    fn visit_block(&mut self, _: &'ast syn::Block) {}
}

#[cfg(test)]
mod tests {
    use super::leaks;

    fn found(text: &str) -> usize {
        leaks("x.rs", text).unwrap().len()
    }

    #[test]
    fn public_signatures_fields_and_re_exports_are_looked_at() {
        let import = "use iwarp_proto::qp::{Fault, Config as Made};\n";
        for leak in [
            "pub struct A { pub fault: Fault }",
            "pub enum A { B(Option<Fault>) }",
            "pub fn a(_: &[Made]) {}",
            "pub struct A; impl A { pub fn a(&self) -> Fault { todo!() } }",
            "pub trait A { fn a(&self) -> Fault; }",
            "pub type A = iwarp_proto::qp::Qp;",
            "pub use iwarp_proto::qp::Event;",
        ] {
            assert_eq!(found(&format!("{import}{leak}")), 1, "{leak}");
        }
    }

    #[test]
    fn private_items_may_name_any_type() {
        let import = "use iwarp_proto::qp::Fault;\n";
        for own in [
            "pub(crate) struct A { pub fault: Fault }",
            "pub struct A { fault: Fault }",
            "impl From<Fault> for A { fn from(_: Fault) -> Self { A } }",
            "pub fn a() { let _: Fault; }",
            "pub(crate) use iwarp_proto::qp::Event;",
        ] {
            assert_eq!(found(&format!("{import}{own}")), 0, "{own}");
        }
    }
}
