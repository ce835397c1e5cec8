//! Formats types, generics and signatures of rustdoc's JSON as Rust source, with public paths.

use std::collections::HashMap;

use rustdoc_types::{
    Abi, AssocItemConstraint, AssocItemConstraintKind, Crate, DynTrait, Function, FunctionHeader, FunctionPointer,
    GenericArg, GenericArgs, GenericBound, GenericParamDef, GenericParamDefKind, Generics, Id, Path,
    PreciseCapturingArg, Term, TraitBoundModifier, Type, WherePredicate,
};

/// Names of the prelude, which are written without their paths.
const PRELUDE: &[&str] = &[
    "alloc::borrow::ToOwned",
    "alloc::boxed::Box",
    "alloc::string::String",
    "alloc::string::ToString",
    "alloc::vec::Vec",
    "core::clone::Clone",
    "core::cmp::Eq",
    "core::cmp::Ord",
    "core::cmp::PartialEq",
    "core::cmp::PartialOrd",
    "core::convert::AsMut",
    "core::convert::AsRef",
    "core::convert::From",
    "core::convert::Into",
    "core::convert::TryFrom",
    "core::convert::TryInto",
    "core::default::Default",
    "core::iter::traits::collect::Extend",
    "core::iter::traits::collect::FromIterator",
    "core::iter::traits::collect::IntoIterator",
    "core::iter::traits::double_ended::DoubleEndedIterator",
    "core::iter::traits::exact_size::ExactSizeIterator",
    "core::iter::traits::iterator::Iterator",
    "core::marker::Copy",
    "core::marker::Send",
    "core::marker::Sized",
    "core::marker::Sync",
    "core::marker::Unpin",
    "core::ops::drop::Drop",
    "core::ops::function::Fn",
    "core::ops::function::FnMut",
    "core::ops::function::FnOnce",
    "core::option::Option",
    "core::result::Result",
];

/// The mark of an item of the crate that has no public path.
pub(super) const UNNAMED: &str = "private::";

/// The data needed to name the items of a crate.
#[derive(Debug)]
pub(super) struct Renderer<'a> {
    /// The crate as rustdoc describes it.
    pub krate: &'a Crate,
    /// The shortest public path of each item that has one.
    pub names: &'a HashMap<Id, String>,
}

impl Renderer<'_> {
    /// Returns an item's public path. If it has none, returns the path of its definition, which is marked if the item
    /// belongs to this crate. Names of the prelude have no path.
    pub(super) fn name(&self, path: &Path) -> String {
        if let Some(name) = self.names.get(&path.id) {
            return name.clone();
        }
        let Some(item) = self.krate.paths.get(&path.id) else { return path.path.clone() };
        let full = item.path.join("::");
        if item.crate_id == 0 {
            return format!("{UNNAMED}{full}");
        }
        if PRELUDE.contains(&full.as_str()) { item.path.last().cloned().unwrap_or_default() } else { full }
    }

    /// Formats a path with its generic arguments.
    pub(super) fn path(&self, path: &Path) -> String {
        self.name(path) + &self.arguments(path.args.as_deref())
    }

    fn arguments(&self, arguments: Option<&GenericArgs>) -> String {
        match arguments {
            None => String::new(),
            Some(GenericArgs::ReturnTypeNotation) => "(..)".into(),
            Some(GenericArgs::Parenthesized { inputs, output }) => {
                let inputs = list(inputs, |input| self.type_(input));
                format!("({inputs}){}", self.output(output.as_ref()))
            }
            Some(GenericArgs::AngleBracketed { args, constraints }) => {
                let args = args.iter().map(|arg| match arg {
                    GenericArg::Lifetime(name) => name.clone(),
                    GenericArg::Type(type_) => self.type_(type_),
                    GenericArg::Const(constant) => constant.expr.clone(),
                    GenericArg::Infer => "_".into(),
                });
                angled(args.chain(constraints.iter().map(|constraint| self.constraint(constraint))))
            }
        }
    }

    fn constraint(&self, constraint: &AssocItemConstraint) -> String {
        let name = format!("{}{}", constraint.name, self.arguments(constraint.args.as_deref()));
        match &constraint.binding {
            AssocItemConstraintKind::Equality(term) => format!("{name} = {}", self.term(term)),
            AssocItemConstraintKind::Constraint(bounds) => format!("{name}: {}", self.bounds(bounds)),
        }
    }

    fn term(&self, term: &Term) -> String {
        match term {
            Term::Type(type_) => self.type_(type_),
            Term::Constant(constant) => constant.expr.clone(),
        }
    }

    /// Formats a type.
    pub(super) fn type_(&self, type_: &Type) -> String {
        match type_ {
            Type::ResolvedPath(path) => self.path(path),
            Type::DynTrait(traits) => self.dyn_trait(traits),
            Type::Generic(name) | Type::Primitive(name) => {
                if name == "never" {
                    "!".into()
                } else {
                    name.clone()
                }
            }
            Type::FunctionPointer(pointer) => self.pointer(pointer),
            Type::Tuple(types) if types.len() == 1 => format!("({},)", self.type_(&types[0])),
            Type::Tuple(types) => format!("({})", list(types, |type_| self.type_(type_))),
            Type::Slice(type_) => format!("[{}]", self.type_(type_)),
            Type::Array { type_, len } => format!("[{}; {len}]", self.type_(type_)),
            Type::Pat { type_, .. } => self.type_(type_),
            Type::ImplTrait(bounds) => format!("impl {}", self.bounds(bounds)),
            Type::Infer => "_".into(),
            Type::RawPointer { is_mutable, type_ } => {
                format!("*{} {}", if *is_mutable { "mut" } else { "const" }, self.pointee(type_))
            }
            Type::BorrowedRef { lifetime, is_mutable, type_ } => {
                format!("{}{}", borrow(lifetime.as_deref(), *is_mutable), self.pointee(type_))
            }
            Type::QualifiedPath { name, args, self_type, trait_ } => {
                let of = match (&**self_type, trait_) {
                    (Type::Generic(of), _) => of.clone(),
                    (of, Some(trait_)) => format!("<{} as {}>", self.type_(of), self.path(trait_)),
                    (of, None) => self.type_(of),
                };
                format!("{of}::{name}{}", self.arguments(args.as_deref()))
            }
        }
    }

    /// Formats a type after `&` or `*`. Several bounds need parentheses there.
    fn pointee(&self, type_: &Type) -> String {
        let text = self.type_(type_);
        let several = match type_ {
            Type::DynTrait(DynTrait { traits, lifetime }) => traits.len() + usize::from(lifetime.is_some()) > 1,
            Type::ImplTrait(bounds) => bounds.len() > 1,
            _ => false,
        };
        if several { format!("({text})") } else { text }
    }

    fn dyn_trait(&self, dyn_trait: &DynTrait) -> String {
        let traits =
            dyn_trait.traits.iter().map(|poly| higher(&self.binder(&poly.generic_params), &self.path(&poly.trait_)));
        format!("dyn {}", traits.chain(dyn_trait.lifetime.clone()).collect::<Vec<_>>().join(" + "))
    }

    fn pointer(&self, pointer: &FunctionPointer) -> String {
        let inputs = list(&pointer.sig.inputs, |(_, input)| self.type_(input));
        let text = format!("{}fn({inputs}){}", header(&pointer.header), self.output(pointer.sig.output.as_ref()));
        higher(&self.binder(&pointer.generic_params), &text)
    }

    fn output(&self, output: Option<&Type>) -> String {
        output.map_or_else(String::new, |output| format!(" -> {}", self.type_(output)))
    }

    /// Formats bounds, joined by `+`.
    pub(super) fn bounds(&self, bounds: &[GenericBound]) -> String {
        let bounds = bounds.iter().map(|bound| match bound {
            GenericBound::Outlives(lifetime) => lifetime.clone(),
            GenericBound::Use(captured) => {
                let captured = captured.iter().map(|captured| match captured {
                    PreciseCapturingArg::Lifetime(name) | PreciseCapturingArg::Param(name) => name.clone(),
                });
                format!("use<{}>", captured.collect::<Vec<_>>().join(", "))
            }
            GenericBound::TraitBound { trait_, generic_params, modifier } => {
                let modifier = match modifier {
                    TraitBoundModifier::None => "",
                    TraitBoundModifier::Maybe => "?",
                    TraitBoundModifier::MaybeConst => "[const] ",
                };
                higher(&self.binder(generic_params), &format!("{modifier}{}", self.path(trait_)))
            }
        });
        bounds.collect::<Vec<_>>().join(" + ")
    }

    /// Formats the parameters of `for<…>`.
    fn binder(&self, parameters: &[GenericParamDef]) -> String {
        angled(parameters.iter().map(|parameter| self.parameter(parameter)))
    }

    /// Formats generic parameters in angle brackets. Returns an empty string if there are none.
    pub(super) fn generics(&self, generics: &Generics) -> String {
        angled(written(generics).map(|parameter| self.parameter(parameter)))
    }

    fn parameter(&self, parameter: &GenericParamDef) -> String {
        let name = &parameter.name;
        let equals = |default: Option<String>| default.map_or_else(String::new, |default| format!(" = {default}"));
        match &parameter.kind {
            GenericParamDefKind::Lifetime { outlives } => bounded(name, &outlives.join(" + ")),
            GenericParamDefKind::Type { bounds, default, .. } => {
                bounded(name, &self.bounds(bounds)) + &equals(default.as_ref().map(|default| self.type_(default)))
            }
            GenericParamDefKind::Const { type_, default } => {
                format!("const {name}: {}{}", self.type_(type_), equals(default.clone()))
            }
        }
    }

    /// Returns the conditions of an `impl` block, including the bounds of its parameters.
    pub(super) fn conditions(&self, generics: &Generics) -> Vec<String> {
        let bounds = written(generics).filter_map(|parameter| match &parameter.kind {
            GenericParamDefKind::Type { bounds, .. } if !bounds.is_empty() => {
                Some(bounded(&parameter.name, &self.bounds(bounds)))
            }
            GenericParamDefKind::Lifetime { outlives } if !outlives.is_empty() => {
                Some(bounded(&parameter.name, &outlives.join(" + ")))
            }
            _ => None,
        });
        bounds.chain(self.predicates(generics)).collect()
    }

    fn predicates(&self, generics: &Generics) -> Vec<String> {
        let predicates = generics.where_predicates.iter().map(|predicate| match predicate {
            WherePredicate::BoundPredicate { type_, bounds, generic_params } => {
                higher(&self.binder(generic_params), &bounded(&self.type_(type_), &self.bounds(bounds)))
            }
            WherePredicate::LifetimePredicate { lifetime, outlives } => bounded(lifetime, &outlives.join(" + ")),
            WherePredicate::EqPredicate { lhs, rhs } => format!("{} = {}", self.type_(lhs), self.term(rhs)),
        });
        predicates.collect()
    }

    /// Formats the `where` clause of an item, with the conditions of the `impl` block around it.
    pub(super) fn where_(&self, outer: &[String], generics: &Generics) -> String {
        let all = [outer, &self.predicates(generics)].concat();
        if all.is_empty() { String::new() } else { format!(" where {}", all.join(", ")) }
    }

    /// Formats a function whose path is `path`, without `pub`.
    pub(super) fn function(&self, path: &str, function: &Function, outer: &[String]) -> String {
        let mut inputs: Vec<String> = function.sig.inputs.iter().map(|(name, type_)| self.input(name, type_)).collect();
        inputs.extend(function.sig.is_c_variadic.then(|| "...".into()));
        format!(
            "{}fn {path}{}({}){}{}",
            header(&function.header),
            self.generics(&function.generics),
            inputs.join(", "),
            self.output(function.sig.output.as_ref()),
            self.where_(outer, &function.generics)
        )
    }

    fn input(&self, name: &str, type_: &Type) -> String {
        let is_self = |type_: &Type| matches!(type_, Type::Generic(name) if name == "Self");
        match type_ {
            type_ if name == "self" && is_self(type_) => "self".into(),
            Type::BorrowedRef { lifetime, is_mutable, type_ } if name == "self" && is_self(type_) => {
                format!("{}self", borrow(lifetime.as_deref(), *is_mutable))
            }
            _ => format!("{name}: {}", self.type_(type_)),
        }
    }
}

/// Returns the parameters that the source names, without those of `impl Trait` in an argument.
fn written(generics: &Generics) -> impl Iterator<Item = &GenericParamDef> {
    let is_synthetic = |kind: &_| matches!(kind, GenericParamDefKind::Type { is_synthetic: true, .. });
    generics.params.iter().filter(move |parameter| !is_synthetic(&parameter.kind))
}

fn bounded(name: &str, bounds: &str) -> String {
    if bounds.is_empty() { name.to_owned() } else { format!("{name}: {bounds}") }
}

fn higher(binder: &str, text: &str) -> String {
    if binder.is_empty() { text.to_owned() } else { format!("for{binder} {text}") }
}

fn angled(parts: impl Iterator<Item = String>) -> String {
    let parts: Vec<_> = parts.collect();
    if parts.is_empty() { String::new() } else { format!("<{}>", parts.join(", ")) }
}

fn list<T>(items: &[T], write: impl Fn(&T) -> String) -> String {
    items.iter().map(write).collect::<Vec<_>>().join(", ")
}

fn borrow(lifetime: Option<&str>, is_mutable: bool) -> String {
    let lifetime = lifetime.map_or_else(String::new, |lifetime| format!("{lifetime} "));
    format!("&{lifetime}{}", if is_mutable { "mut " } else { "" })
}

fn header(header: &FunctionHeader) -> String {
    let mut text = String::new();
    for (is, word) in [(header.is_const, "const "), (header.is_async, "async "), (header.is_unsafe, "unsafe ")] {
        text += if is { word } else { "" };
    }
    match &header.abi {
        Abi::Rust => text,
        Abi::C { unwind: false } => text + "extern \"C\" ",
        other => format!("{text}extern \"{other:?}\" "),
    }
}
