// SPDX-License-Identifier: MIT OR Apache-2.0

//! The modules of a crate, and the contents of each: its items, its imports and the paths that it
//! names.

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result};
use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use syn::parse::Parser as _;
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, Meta, Token, UseTree};

/// A module: a file, or a part of one.
#[derive(Debug, Default)]
pub(super) struct Module {
    /// Names from the crate's root, which has none.
    pub(super) path: Vec<String>,
    /// As messages show it.
    pub(super) file: String,
    /// The names that are defined here, modules included.
    pub(super) items: HashSet<String>,
    /// Names that a `use` brings here, and the paths that they stand for, as written.
    pub(super) imports: HashMap<String, Vec<String>>,
    /// Paths of which all names are brought here.
    pub(super) globs: Vec<Vec<String>>,
    /// Paths that are named here, as written, `use` included.
    pub(super) named: Vec<Named>,
    /// Methods and associated functions that are called here.
    pub(super) called: HashMap<String, usize>,
    /// Functions of any kind that are defined here.
    pub(super) functions: HashSet<String>,
    /// Functions of an `impl` without a trait, under the type as written.
    pub(super) methods: Vec<(Named, Vec<String>)>,
}

/// A path as written, and where.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) path: Vec<String>,
    pub(super) line: usize,
    /// It is passed on, and not used here for all that is known.
    pub(super) passed_on: bool,
    /// It is one name, of a value: of a variable, perhaps.
    pub(super) is_value: bool,
}

/// Reads the crate whose root is that file, whose folder `load` reads from.
pub(super) fn read(root: &str, load: &Load<'_>) -> Result<Vec<Module>> {
    let mut modules = Vec::new();
    let text = load(root).with_context(|| root.to_owned())?;
    let folder = root.rsplit_once('/').map_or("", |(folder, _)| folder);
    read_file(root, &text, folder, Vec::new(), load, &mut modules)?;
    Ok(modules)
}

/// The content of a file, if there is one.
pub(super) type Load<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// Reads `file`; its child modules are in `folder`.
fn read_file(
    file: &str,
    text: &str,
    folder: &str,
    path: Vec<String>,
    load: &Load<'_>,
    modules: &mut Vec<Module>,
) -> Result<()> {
    let parsed = syn::parse_file(text).with_context(|| file.to_owned())?;
    let own = path.len();
    for child in gather(&parsed.items, path, file, modules) {
        let stem = format!("{folder}/{}", child[own..].join("/"));
        let candidates = [format!("{stem}.rs"), format!("{stem}/mod.rs")];
        let found = candidates.iter().find_map(|file| Some((file, load(file)?)));
        let (file, text) = found.with_context(|| format!("{file}: no file for {stem}"))?;
        read_file(file, &text, &stem, child, load, modules)?;
    }
    Ok(())
}

/// Adds the modules that the items are; returns those that have files of their own.
fn gather(
    items: &[Item],
    path: Vec<String>,
    file: &str,
    modules: &mut Vec<Module>,
) -> Vec<Vec<String>> {
    let mut reader = Reader {
        module: Module { path: path.clone(), file: file.to_owned(), ..Module::default() },
        passes_on: false,
        is_value: false,
        outside: Vec::new(),
        inside: Vec::new(),
    };
    items.iter().for_each(|item| reader.visit_item(item));
    modules.push(reader.module);
    let mut outside = reader.outside;
    for (name, items) in reader.inside {
        let path = [path.as_slice(), &[name]].concat();
        outside.extend(gather(items, path, file, modules));
    }
    outside
}

struct Reader<'ast> {
    module: Module,
    /// Within a `use` that is seen outside of the module.
    passes_on: bool,
    /// Within an expression that is one name.
    is_value: bool,
    outside: Vec<Vec<String>>,
    inside: Vec<(String, &'ast [Item])>,
}

impl Reader<'_> {
    fn name(&mut self, path: Vec<String>, line: usize) {
        // By itself it is a visibility, within a macro.
        if path == ["crate"] {
            return;
        }
        let (passed_on, is_value) = (self.passes_on, self.is_value);
        self.module.named.push(Named { path, line, passed_on, is_value });
    }

    fn import(&mut self, tree: &UseTree, before: &[String]) {
        match tree {
            UseTree::Path(path) => {
                let before = [before, &[path.ident.to_string()]].concat();
                self.import(&path.tree, &before);
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.import(tree, before));
            }
            UseTree::Glob(glob) => {
                self.name(before.to_vec(), line_of(glob.star_token.spans[0]));
                self.module.globs.push(before.to_vec());
            }
            UseTree::Name(name) => self.import_as(before, &name.ident, &name.ident),
            UseTree::Rename(rename) => self.import_as(before, &rename.ident, &rename.rename),
        }
    }

    fn import_as(&mut self, before: &[String], ident: &Ident, alias: &Ident) {
        let mut path = before.to_vec();
        let mut alias = alias.to_string();
        if ident == "self" {
            if alias == "self" {
                alias = path.last().cloned().unwrap_or_default();
            }
        } else {
            path.push(ident.to_string());
        }
        self.name(path.clone(), line_of(ident.span()));
        self.module.imports.insert(alias, path);
    }

    /// Takes everything that looks like a path within the tokens of a macro.
    fn scan(&mut self, tokens: &TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut line = 0;
        let mut colons = 0;
        for token in tokens.clone() {
            match &token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => {
                    colons += 1;
                    continue;
                }
                TokenTree::Ident(ident) => {
                    if colons != 2 || path.is_empty() {
                        self.end(&mut path, line);
                        line = line_of(ident.span());
                    }
                    path.push(ident.to_string());
                }
                TokenTree::Group(group) => {
                    if group.delimiter() == Delimiter::Brace && colons == 2 && !path.is_empty() {
                        self.scan_group(&group.stream(), &path);
                        path.clear();
                    } else {
                        self.end(&mut path, line);
                        self.scan(&group.stream());
                    }
                }
                _ => self.end(&mut path, line),
            }
            colons = 0;
        }
        self.end(&mut path, line);
    }

    /// `a::{b, c::d}` in a macro: a `use`, if it is one at all.
    fn scan_group(&mut self, tokens: &TokenStream, before: &[String]) {
        match Punctuated::<UseTree, Token![,]>::parse_terminated.parse2(tokens.clone()) {
            Ok(trees) => trees.iter().for_each(|tree| self.import(tree, before)),
            Err(_) => self.scan(tokens),
        }
    }

    fn end(&mut self, path: &mut Vec<String>, line: usize) {
        if path.is_empty() {
            return;
        }
        let path = std::mem::take(path);
        if let Some(last) = path.last() {
            self.module.called.entry(last.clone()).or_insert(line);
        }
        self.name(path, line);
    }
}

impl<'ast> Visit<'ast> for Reader<'ast> {
    fn visit_item(&mut self, item: &'ast Item) {
        if attributes(item).iter().any(is_for_tests) {
            return;
        }
        if let Some(name) = defines(item) {
            self.module.items.insert(name);
        }
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let name = item.ident.to_string();
        match &item.content {
            Some((_, items)) => self.inside.push((name, items)),
            None => self.outside.push([self.module.path.as_slice(), &[name]].concat()),
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if item.leading_colon.is_none() {
            self.passes_on = !matches!(item.vis, syn::Visibility::Inherited);
            self.import(&item.tree, &[]);
            self.passes_on = false;
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.module.functions.insert(item.sig.ident.to_string());
        visit::visit_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.module.functions.insert(item.sig.ident.to_string());
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !item.attrs.iter().any(is_for_tests) {
            self.module.functions.insert(item.sig.ident.to_string());
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if item.trait_.is_none()
            && let syn::Type::Path(own) = &*item.self_ty
        {
            let functions = item.items.iter().filter_map(|item| match item {
                syn::ImplItem::Fn(function) => Some(function.sig.ident.to_string()),
                _ => None,
            });
            let line = line_of(item.impl_token.span);
            let path = segments(&own.path);
            let named = Named { path, line, passed_on: false, is_value: false };
            self.module.methods.push((named, functions.collect()));
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let line = line_of(call.method.span());
        self.module.called.entry(call.method.to_string()).or_insert(line);
        visit::visit_expr_method_call(self, call);
    }

    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_expr_path(&mut self, expr: &'ast syn::ExprPath) {
        self.is_value = expr.path.get_ident().is_some();
        visit::visit_expr_path(self, expr);
        self.is_value = false;
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none()
            && let Some(first) = path.segments.first()
        {
            let mut written = segments(path);
            self.end(&mut written, line_of(first.ident.span()));
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, invoked: &'ast syn::Macro) {
        visit::visit_macro(self, invoked);
        self.scan(&invoked.tokens);
    }
}

fn segments(path: &syn::Path) -> Vec<String> {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect()
}

fn line_of(span: proc_macro2::Span) -> usize {
    span.start().line
}

/// True if an item with the attribute is compiled for tests only.
fn is_for_tests(attribute: &Attribute) -> bool {
    fn needs_test(meta: &Meta) -> bool {
        let Meta::List(list) = meta else { return meta.path().is_ident("test") };
        let parser = Punctuated::<Meta, Token![,]>::parse_terminated;
        let Ok(inner) = list.parse_args_with(parser) else { return false };
        if list.path.is_ident("not") {
            return false;
        }
        match list.path.is_ident("any") {
            true => !inner.is_empty() && inner.iter().all(needs_test),
            false => inner.iter().any(needs_test),
        }
    }
    attribute.path().is_ident("cfg") && needs_test(&attribute.meta)
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn defines(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Mod(item) => &item.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}
