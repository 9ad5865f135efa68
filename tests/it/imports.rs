//! The import graph of the crates: no circles between files, and the directions of ARCHITECTURE.md.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use syn::{
    Attribute, Item, ItemMod, ItemUse, UseTree, Visibility,
    visit::{self, Visit},
};

/// Path of a module inside its crate; empty for the crate root.
type Module = Vec<String>;

/// The modules of one crate, and what each imports from the others. Re-exports count as imports of
/// the module that defines the item.
struct Crate {
    files: BTreeMap<Module, File>,
}

#[derive(Default)]
struct File {
    /// Public name to the path that it re-exports.
    exports: BTreeMap<String, Module>,
    /// Modules whose items are all re-exported.
    globs: Vec<Module>,
    imports: BTreeSet<Module>,
}

impl Crate {
    fn read(name: &'static str) -> Self {
        let src = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("..")
            .join(name)
            .join("src");
        let mut files = BTreeMap::new();
        let roots = ["lib.rs", "main.rs"].map(|it| src.join(it));
        let root = roots.iter().find(|it| it.is_file());
        let root = root.unwrap_or_else(|| panic!("{name} has no root"));
        read_module(&src, root, &Vec::new(), &mut files);
        Self { files }
    }

    /// The file that defines what `path` names, following re-exports.
    fn resolve(&self, path: &[String]) -> Option<Module> {
        self.resolve_within(path, 16)
    }

    fn resolve_within(&self, path: &[String], steps: usize) -> Option<Module> {
        let steps = steps.checked_sub(1)?;
        let longest = (0..=path.len())
            .rev()
            .find(|&it| self.files.contains_key(&path[..it]))?;
        let (module, rest) = path.split_at(longest);
        let file = &self.files[module];
        let Some((item, rest)) = rest.split_first() else {
            return Some(module.to_vec());
        };
        if let Some(target) = file.exports.get(item) {
            let target: Vec<_> = target.iter().chain(rest).cloned().collect();
            return self.resolve_within(&target, steps);
        }
        for glob in &file.globs {
            let mut target = glob.clone();
            target.push(item.clone());
            if let Some(found) = self.resolve_within(&target, steps)
                && (found != *glob || self.files[glob].exports.contains_key(item))
            {
                return Some(found);
            }
        }
        Some(module.to_vec())
    }

    /// The names that a file imports from the crate root and that are no modules: its re-exports.
    fn imports_by_root<'a>(&'a self, file: &'a File) -> impl Iterator<Item = &'a str> {
        let imports = file.imports.iter();
        let names = imports.filter(|it| it.len() == 1 && !self.files.contains_key(*it));
        names.flatten().map(String::as_str)
    }

    /// Every import between two files of the crate.
    fn edges(&self) -> BTreeMap<Module, BTreeSet<Module>> {
        let edges_of = |(from, file): (&Module, &File)| {
            let targets = file.imports.iter().filter_map(|it| self.resolve(it));
            (from.clone(), targets.filter(|to| to != from).collect())
        };
        self.files.iter().map(edges_of).collect()
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|it| {
        it.path().is_ident("cfg")
            && it.meta.require_list().is_ok_and(|list| {
                let condition = list.tokens.to_string();
                condition == "test"
                    || condition.starts_with("all (test")
                    || condition.starts_with("loom")
            })
    })
}

fn read_module(src: &Path, path: &Path, module: &Module, files: &mut BTreeMap<Module, File>) {
    let text =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let syntax =
        syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut reader = Reader {
        module: module.clone(),
        file: File::default(),
        children: Vec::new(),
    };
    reader.visit_file(&syntax);
    let Reader { file, children, .. } = reader;
    files.insert(module.clone(), file);
    for child in children {
        let mut submodule = module.clone();
        submodule.push(child);
        let base: PathBuf = src.join(submodule.iter().collect::<PathBuf>());
        let flat = base.with_extension("rs");
        let path = if flat.is_file() {
            flat
        } else {
            base.join("mod.rs")
        };
        read_module(src, &path, &submodule, files);
    }
}

struct Reader {
    module: Module,
    file: File,
    children: Vec<String>,
}

impl Reader {
    /// A path of this crate as an absolute one; `None` for other crates and local names.
    fn absolute(&self, path: &[String]) -> Option<Module> {
        let first = path.first()?;
        let mut absolute = match &**first {
            "crate" => Vec::new(),
            "self" => self.module.clone(),
            "super" => {
                let supers = path.iter().take_while(|it| *it == "super").count();
                let depth = self.module.len().checked_sub(supers)?;
                let mut parent = self.module[..depth].to_vec();
                parent.extend_from_slice(&path[supers..]);
                return Some(parent);
            }
            child if self.children.iter().any(|it| it == child) => {
                let mut absolute = self.module.clone();
                absolute.push(child.to_owned());
                absolute
            }
            _ => return None,
        };
        absolute.extend_from_slice(&path[1..]);
        Some(absolute)
    }

    fn add_use(&mut self, tree: &UseTree, prefix: &mut Vec<String>, public: bool) {
        match tree {
            UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.add_use(&path.tree, prefix, public);
                prefix.pop();
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.add_use(tree, prefix, public);
                }
            }
            UseTree::Glob(_) => {
                let Some(target) = self.absolute(prefix) else {
                    return;
                };
                if public {
                    self.file.globs.push(target);
                } else {
                    self.file.imports.insert(target);
                }
            }
            UseTree::Name(name) => {
                let name = name.ident.to_string();
                self.add_name(prefix, &name, &name, public);
            }
            UseTree::Rename(rename) => {
                self.add_name(
                    prefix,
                    &rename.ident.to_string(),
                    &rename.rename.to_string(),
                    public,
                );
            }
        }
    }

    fn add_name(&mut self, prefix: &[String], name: &str, alias: &str, public: bool) {
        let mut path = prefix.to_vec();
        let mut alias = alias;
        if name == "self" {
            if alias == "self" {
                alias = prefix.last().map_or("self", |it| it);
            }
        } else {
            path.push(name.to_owned());
        }
        let Some(target) = self.absolute(&path) else {
            return;
        };
        // A private import is visible to child modules, as `super::Name`.
        self.file.exports.insert(alias.to_owned(), target.clone());
        if !public {
            self.file.imports.insert(target);
        }
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_file(&mut self, file: &'ast syn::File) {
        for item in &file.items {
            if let Item::Mod(ItemMod {
                ident,
                content: None,
                attrs,
                ..
            }) = item
                && !is_test(attrs)
            {
                self.children.push(ident.to_string());
            }
        }
        visit::visit_file(self, file);
    }

    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Mod(it) => &it.attrs,
            Item::Use(it) => &it.attrs,
            Item::Fn(it) => &it.attrs,
            Item::Impl(it) => &it.attrs,
            Item::Struct(it) => &it.attrs,
            Item::Const(it) => &it.attrs,
            _ => &Vec::new(),
        };
        if !is_test(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let public = !matches!(item.vis, Visibility::Inherited);
        self.add_use(&item.tree, &mut Vec::new(), public);
    }

    /// The path of `pub(in path)` imports nothing.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<_> = path
            .segments
            .iter()
            .map(|it| it.ident.to_string())
            .collect();
        if segments.len() > 1
            && matches!(&*segments[0], "crate" | "self" | "super")
            && let Some(target) = self.absolute(&segments)
        {
            self.file.imports.insert(target);
        }
        visit::visit_path(self, path);
    }
}

/// Groups of nodes that reach each other, largest first.
fn circles<T: Ord + Clone>(edges: &BTreeMap<T, BTreeSet<T>>) -> Vec<BTreeSet<T>> {
    let reach = |from: &T| {
        let mut seen = BTreeSet::new();
        let mut open = vec![from.clone()];
        while let Some(node) = open.pop() {
            for next in edges.get(&node).into_iter().flatten() {
                if seen.insert(next.clone()) {
                    open.push(next.clone());
                }
            }
        }
        seen
    };
    let reached: BTreeMap<_, _> = edges.keys().map(|it| (it.clone(), reach(it))).collect();
    let mut found = BTreeSet::new();
    for (node, seen) in &reached {
        if seen.contains(node) {
            let circle: BTreeSet<_> = seen
                .iter()
                .filter(|it| reached.get(*it).is_some_and(|back| back.contains(node)))
                .cloned()
                .collect();
            found.insert(circle);
        }
    }
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_by_key(|it| std::cmp::Reverse(it.len()));
    found
}

/// The top-level module of a file: its folder, or the file itself at the crate root.
fn folder(module: &Module) -> String {
    module.first().cloned().unwrap_or_default()
}

fn shown(module: &Module) -> String {
    if module.is_empty() {
        "lib".to_owned()
    } else {
        module.join("::")
    }
}

const CRATES: [&str; 8] = [
    "openapi",
    "config",
    "middleware/holder",
    "middleware",
    "server",
    "server/cli",
    "server/core",
    "server/sim",
];

#[test]
fn import_circles_hold_only_a_module_and_its_children() {
    let mut wrong = Vec::new();
    for name in CRATES {
        let found = Crate::read(name);
        assert!(found.files.len() > 5, "{name} was not read");
        for circle in circles(&found.edges()) {
            let parent = circle.iter().min_by_key(|it| it.len()).expect("not empty");
            let family = circle.iter().all(|it| {
                it == parent || it.split_last().is_some_and(|(_, above)| above == *parent)
            });
            if parent.is_empty() || !family {
                let files: Vec<_> = circle.iter().map(shown).collect();
                wrong.push(format!("{name}: {}", files.join(", ")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn folders_import_each_other_in_one_direction() {
    let mut wrong = Vec::new();
    for name in CRATES {
        let found = Crate::read(name);
        let mut folders: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (from, targets) in found.edges() {
            let to = targets.iter().map(folder).filter(|to| *to != folder(&from));
            folders.entry(folder(&from)).or_default().extend(to);
        }
        for circle in circles(&folders) {
            let names: Vec<_> = circle.into_iter().collect();
            wrong.push(format!("{name}: {}", names.join(", ")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Importing folder, and the folders that it must not import.
const FORBIDDEN: [(&str, &str, &[&str]); 16] = [
    (
        "server/core",
        "ledger",
        &["election", "etcd", "reign", "upstream"],
    ),
    ("server/core", "reign", &["election", "etcd", "upstream"]),
    ("server/core", "etcd", &["election", "ledger", "reign"]),
    ("server/core", "upstream", &["election", "etcd", "reign"]),
    ("server/core", "election", &["upstream"]),
    (
        "server",
        "etcd",
        &[
            "auth",
            "document",
            "durability",
            "http",
            "leasing",
            "net",
            "observe",
            "quota",
        ],
    ),
    ("server", "auth", &["http", "observe", "quota"]),
    ("server", "quota", &["auth", "http", "observe"]),
    ("server", "observe", &["auth", "http", "quota"]),
    ("server", "net", &["auth", "document", "http", "leasing"]),
    ("server", "leasing", &["auth", "document", "http"]),
    ("server", "durability", &["auth", "document", "http"]),
    ("server", "document", &["auth", "http"]),
    (
        "server",
        "util",
        &[
            "auth",
            "document",
            "durability",
            "http",
            "leasing",
            "net",
            "observe",
            "quota",
        ],
    ),
    ("server", "http", &["agent", "server"]),
    (
        "server",
        "agent",
        &[
            "auth",
            "document",
            "durability",
            "etcd",
            "leasing",
            "mastership",
            "quota",
            "server",
        ],
    ),
];

#[test]
fn folders_import_only_what_the_architecture_allows() {
    let mut wrong = Vec::new();
    for (name, from, forbidden) in FORBIDDEN {
        let found = Crate::read(name);
        let edges = found.edges();
        let importing = edges.iter().filter(|(it, _)| folder(it) == from);
        assert!(importing.clone().count() > 0, "{name} has no folder {from}");
        for (file, targets) in importing {
            for to in targets
                .iter()
                .filter(|it| forbidden.contains(&&*folder(it)))
            {
                wrong.push(format!("{name}: {} imports {}", shown(file), shown(to)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The modules of the layer from the lowest to the highest. Each imports only lower ones.
const LAYER: [&str; 32] = [
    "clock",
    "credentials",
    "error",
    "refusal",
    "status",
    "tuning",
    "cost",
    "demand",
    "key",
    "outcome",
    "meter",
    "quota",
    "limiter",
    "fixed",
    "resource_use",
    "charge",
    "permit",
    "snapshot",
    "direct",
    "limit",
    "admission",
    "capacity",
    "gauge",
    "rate",
    "check",
    "rules",
    "layer",
    "lease",
    "outbound",
    "own_rules",
    "handle",
    "builder",
];

#[test]
fn modules_of_the_layer_import_only_lower_ones() {
    let found = Crate::read("middleware");
    let floor = |module: &Module| {
        let folder = folder(module);
        let floor = LAYER.iter().position(|it| *it == folder);
        floor.unwrap_or_else(|| panic!("{folder} has no place in the order of the layer"))
    };
    let mut wrong = Vec::new();
    for (from, targets) in found.edges().iter().filter(|(it, _)| !it.is_empty()) {
        for to in targets {
            if to.is_empty() || floor(to) > floor(from) {
                wrong.push(format!("{} imports {}", shown(from), shown(to)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The re-exports of the root are for users: a module that imports by them hides which one it
/// needs.
#[test]
fn modules_of_the_layer_import_nothing_by_the_root() {
    let found = Crate::read("middleware");
    let mut wrong = Vec::new();
    for (module, file) in &found.files {
        for name in found.imports_by_root(file) {
            wrong.push(format!("{} imports crate::{name}", shown(module)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
