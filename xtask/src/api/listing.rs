//! Lists the public items of a crate: one line each, sorted by their public paths.

use std::collections::{BTreeSet, HashMap};

use rustdoc_types::{
    Attribute, Crate, Enum, Id, Impl, Item, ItemEnum, Module, Struct, StructKind, Trait, Type, Use, Variant,
    VariantKind, Visibility,
};

use super::render::Renderer;

/// Traits whose implementations are of no interest to a user.
const LEFT_OUT: &[&str] = &["Freeze", "RefUnwindSafe", "StructuralPartialEq", "UnsafeUnpin", "UnwindSafe"];

/// Returns the lines of all public items that can be reached from the crate's root. Rustdoc omits private and hidden
/// items.
pub(super) fn lines(krate: &Crate) -> Vec<String> {
    let mut places = Places { krate, own: Vec::new(), foreign: Vec::new(), globs: Vec::new() };
    if let Some(Item { name: Some(name), inner: ItemEnum::Module(root), .. }) = krate.index.get(&krate.root) {
        places.walk(root, name, &mut vec![krate.root]);
    }
    let names = places.names();
    let mut listing = Listing { renderer: Renderer { krate, names: &names }, lines: BTreeSet::new() };
    for (path, id) in &places.own {
        match krate.index.get(id) {
            Some(item) if names[id] == *path => listing.item(path, item),
            _ => listing.add(path, format!("pub use {} as {path}", names[id])),
        }
    }
    for (path, _, source) in &places.foreign {
        listing.add(path, format!("pub use {source} as {path}"));
    }
    for (path, source) in &places.globs {
        listing.add(path, format!("pub use {source}::* in {path}"));
    }
    listing.lines.into_iter().map(|(_, _, line)| line).collect()
}

/// The paths under which items can be named.
#[derive(Debug)]
struct Places<'a> {
    krate: &'a Crate,
    /// The items of this crate, each with all its paths.
    own: Vec<(String, Id)>,
    /// Items of other crates, with the names that the source uses.
    foreign: Vec<(String, Option<Id>, String)>,
    /// Modules that re-export all items of another module or enumeration, each with the name that the source uses for
    /// the latter.
    globs: Vec<(String, String)>,
}

impl Places<'_> {
    /// Walks through a module. `above` holds the enclosing modules, so that a module which re-exports an enclosing one
    /// is not walked endlessly.
    fn walk(&mut self, module: &Module, path: &str, above: &mut Vec<Id>) {
        for id in &module.items {
            let Some(item) = self.krate.index.get(id) else { continue };
            match (&item.inner, &item.name) {
                (ItemEnum::Use(used), _) => self.used(used, path, above),
                (_, Some(name)) => self.place(*id, format!("{path}::{name}"), above),
                (_, None) => {}
            }
        }
    }

    fn place(&mut self, id: Id, path: String, above: &mut Vec<Id>) {
        if let Some(Item { inner: ItemEnum::Module(module), .. }) = self.krate.index.get(&id) {
            self.inside(id, module, &path, above);
        }
        self.own.push((path, id));
    }

    fn inside(&mut self, id: Id, module: &Module, path: &str, above: &mut Vec<Id>) {
        if !above.contains(&id) {
            above.push(id);
            self.walk(module, path, above);
            above.pop();
        }
    }

    fn used(&mut self, used: &Use, within: &str, above: &mut Vec<Id>) {
        let target = used.id.and_then(|id| Some((id, &self.krate.index.get(&id)?.inner)));
        let path = format!("{within}::{}", used.name);
        match target {
            Some((id, ItemEnum::Module(module))) if used.is_glob => self.inside(id, module, within, above),
            _ if used.is_glob => self.globs.push((within.to_owned(), used.source.clone())),
            Some((_, ItemEnum::Use(used))) => self.used(used, within, above),
            Some((id, _)) => self.place(id, path, above),
            None => self.foreign.push((path, used.id, used.source.clone())),
        }
    }

    /// Returns the path with the fewest segments of each item.
    fn names(&self) -> HashMap<Id, String> {
        let own = self.own.iter().map(|(path, id)| (path, *id));
        let foreign = self.foreign.iter().filter_map(|(path, id, _)| Some((path, (*id)?)));
        let mut names: HashMap<Id, String> = HashMap::new();
        let rank = |path: &String| (path.matches("::").count(), path.clone());
        for (path, id) in own.chain(foreign) {
            let name = names.entry(id).or_insert_with(|| path.clone());
            if rank(path) < rank(name) {
                name.clone_from(path);
            }
        }
        names
    }
}

/// The lines collected so far.
#[derive(Debug)]
struct Listing<'a> {
    renderer: Renderer<'a>,
    /// The lines, sorted by path. The item itself comes first, and its implementations follow.
    lines: BTreeSet<(String, u8, String)>,
}

impl<'a> Listing<'a> {
    fn add(&mut self, path: &str, line: String) {
        self.lines.insert((path.to_owned(), 0, line));
    }

    fn find(&self, id: Id) -> Option<&'a Item> {
        self.renderer.krate.index.get(&id)
    }

    fn found(&self, ids: &[Id]) -> Vec<&'a Item> {
        ids.iter().filter_map(|id| self.find(*id)).collect()
    }

    fn item(&mut self, path: &str, item: &Item) {
        let renderer = &self.renderer;
        let text = match &item.inner {
            ItemEnum::Struct(of) => return self.structure(path, item, of),
            ItemEnum::Enum(of) => return self.enumeration(path, item, of),
            ItemEnum::Trait(of) => return self.interface(path, item, of),
            ItemEnum::Union(of) => {
                self.fields(path, &of.fields);
                self.impls(path, item.id, &of.impls);
                let generics = self.renderer.generics(&of.generics);
                format!("union {path}{generics}{}", self.renderer.where_(&[], &of.generics))
            }
            ItemEnum::Module(_) => format!("mod {path}"),
            ItemEnum::Function(of) => renderer.function(path, of, &[]),
            ItemEnum::TypeAlias(of) => {
                format!("type {path}{} = {}", renderer.generics(&of.generics), renderer.type_(&of.type_))
            }
            ItemEnum::Constant { type_, const_ } => {
                let value = if const_.expr == "_" { const_.value.as_ref() } else { None };
                format!("const {path}: {} = {}", renderer.type_(type_), value.unwrap_or(&const_.expr))
            }
            ItemEnum::Static(of) => {
                let mutable = if of.is_mutable { "mut " } else { "" };
                format!("static {mutable}{path}: {}", renderer.type_(&of.type_))
            }
            ItemEnum::Macro(_) | ItemEnum::ProcMacro(_) => format!("macro {path}!"),
            other => format!("{:?} {path}", other.item_kind()),
        };
        self.add(path, format!("pub {text}"));
    }

    fn structure(&mut self, path: &str, item: &Item, of: &Struct) {
        let form = match &of.kind {
            StructKind::Unit => String::new(),
            StructKind::Tuple(fields) => self.tuple(fields),
            StructKind::Plain { fields, has_stripped_fields } => {
                self.fields(path, fields);
                String::from(if *has_stripped_fields { " { .. }" } else { " { /* all public */ }" })
            }
        };
        let renderer = &self.renderer;
        let (generics, where_) = (renderer.generics(&of.generics), renderer.where_(&[], &of.generics));
        self.add(path, format!("{}pub struct {path}{generics}{form}{where_}", open(item)));
        self.impls(path, item.id, &of.impls);
    }

    fn enumeration(&mut self, path: &str, item: &Item, of: &Enum) {
        let renderer = &self.renderer;
        let (generics, where_) = (renderer.generics(&of.generics), renderer.where_(&[], &of.generics));
        self.add(path, format!("{}pub enum {path}{generics}{where_}", open(item)));
        for variant in self.found(&of.variants) {
            if let (ItemEnum::Variant(of), Some(name)) = (&variant.inner, &variant.name) {
                let path = format!("{path}::{name}");
                let line = format!("{}{path}{}", open(variant), self.variant(of));
                self.add(&path, line);
            }
        }
        self.impls(path, item.id, &of.impls);
    }

    /// Formats the part after the name of a variant.
    fn variant(&self, of: &Variant) -> String {
        let form = match &of.kind {
            VariantKind::Plain => String::new(),
            VariantKind::Tuple(fields) => self.tuple(fields),
            VariantKind::Struct { fields, has_stripped_fields } => {
                let fields =
                    fields.iter().filter_map(|id| self.field(*id)).map(|(name, type_)| format!("{name}: {type_}"));
                let fields: Vec<_> = fields.chain(has_stripped_fields.then(|| "..".into())).collect();
                format!(" {{ {} }}", fields.join(", "))
            }
        };
        let value = of.discriminant.as_ref().map_or_else(String::new, |value| format!(" = {}", value.value));
        form + &value
    }

    fn field(&self, id: Id) -> Option<(&'a str, String)> {
        let item = self.find(id)?;
        let ItemEnum::StructField(type_) = &item.inner else { return None };
        Some((item.name.as_deref()?, self.renderer.type_(type_)))
    }

    fn fields(&mut self, path: &str, fields: &[Id]) {
        for (name, type_) in fields.iter().filter_map(|id| self.field(*id)).collect::<Vec<_>>() {
            let path = format!("{path}::{name}");
            self.add(&path, format!("pub {path}: {type_}"));
        }
    }

    /// Formats fields without names. A private field is `_`.
    fn tuple(&self, fields: &[Option<Id>]) -> String {
        let types =
            fields.iter().map(|id| id.and_then(|id| self.field(id)).map_or_else(|| "_".into(), |field| field.1));
        format!("({})", types.collect::<Vec<_>>().join(", "))
    }

    fn interface(&mut self, path: &str, item: &Item, of: &Trait) {
        let renderer = &self.renderer;
        let bounds = if of.bounds.is_empty() { String::new() } else { format!(": {}", renderer.bounds(&of.bounds)) };
        let (generics, where_) = (renderer.generics(&of.generics), renderer.where_(&[], &of.generics));
        let kind = if of.is_unsafe { "unsafe trait" } else { "trait" };
        self.add(path, format!("pub {kind} {path}{generics}{bounds}{where_}"));
        for item in self.found(&of.items) {
            if let Some(name) = &item.name {
                let path = format!("{path}::{name}");
                let line = self.associated(&path, item, &[]);
                self.add(&path, line);
            }
        }
        self.impls(path, item.id, &of.implementations);
    }

    /// Formats an item of a trait or of an `impl` block. A function with a default body ends with `{ .. }`.
    fn associated(&self, path: &str, item: &Item, outer: &[String]) -> String {
        let renderer = &self.renderer;
        match &item.inner {
            ItemEnum::Function(of) => {
                let provided = item.visibility == Visibility::Default && of.has_body;
                renderer.function(path, of, outer) + if provided { " { .. }" } else { "" }
            }
            ItemEnum::AssocConst { type_, value } => {
                let value = value.as_ref().map_or_else(String::new, |value| format!(" = {value}"));
                format!("const {path}: {}{value}", renderer.type_(type_))
            }
            ItemEnum::AssocType { generics, bounds, type_ } => {
                let bounds = if bounds.is_empty() { String::new() } else { format!(": {}", renderer.bounds(bounds)) };
                let value = type_.as_ref().map_or_else(String::new, |type_| format!(" = {}", renderer.type_(type_)));
                format!("type {path}{}{bounds}{value}{}", renderer.generics(generics), renderer.where_(&[], generics))
            }
            other => format!("{:?} {path}", other.item_kind()),
        }
    }

    /// Lists the implementations for a type, or the implementations of a trait for types of other crates.
    fn impls(&mut self, path: &str, own: Id, ids: &[Id]) {
        for item in self.found(ids) {
            let ItemEnum::Impl(of) = &item.inner else { continue };
            // Rustdoc lists an `impl From<A> for B` also among the implementations of A.
            let of_other =
                matches!(&of.for_, Type::ResolvedPath(path) if path.id != own && self.find(path.id).is_some());
            // Blanket implementations of other crates do not belong to this crate.
            if of_other || of.blanket_impl.is_some() {
                continue;
            }
            if let Some(trait_) = &of.trait_ {
                let full = self.renderer.name(trait_);
                let name = full.rsplit("::").next().unwrap_or_default();
                // Almost every type is `Unpin`.
                if !LEFT_OUT.contains(&name) && (name != "Unpin" || of.is_negative || !of.is_synthetic) {
                    let line = self.implementation(of, &self.renderer.path(trait_));
                    self.lines.insert((path.to_owned(), 1, line));
                }
            } else {
                self.inherent(path, of);
            }
        }
    }

    fn implementation(&self, of: &Impl, trait_: &str) -> String {
        let renderer = &self.renderer;
        let items = self.found(&of.items).into_iter().filter(|item| !matches!(item.inner, ItemEnum::Function(_)));
        let items: Vec<_> =
            items.map(|item| self.associated(item.name.as_deref().unwrap_or_default(), item, &[])).collect();
        let items = if items.is_empty() { String::new() } else { format!(" {{ {} }}", items.join("; ")) };
        format!(
            "{}impl{} {}{trait_} for {}{}{items}",
            if of.is_unsafe { "unsafe " } else { "" },
            renderer.generics(&of.generics),
            if of.is_negative { "!" } else { "" },
            renderer.type_(&of.for_),
            renderer.where_(&[], &of.generics)
        )
    }

    fn inherent(&mut self, path: &str, of: &Impl) {
        let (outer, type_) = (self.renderer.conditions(&of.generics), self.renderer.type_(&of.for_));
        for item in self.found(&of.items) {
            if let Some(name) = &item.name {
                let line = self.associated(&format!("{type_}::{name}"), item, &outer);
                self.add(&format!("{path}::{name}"), format!("pub {line}"));
            }
        }
    }
}

/// Returns the mark of an item that is not exhaustive.
fn open(item: &Item) -> &'static str {
    if item.attrs.contains(&Attribute::NonExhaustive) { "#[non_exhaustive] " } else { "" }
}
