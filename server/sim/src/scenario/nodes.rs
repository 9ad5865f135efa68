//! The tree of nodes of a scenario.

use std::{collections::BTreeSet, iter};

use doorman_openapi::NodeId;
use serde::Deserialize;

use super::{InvalidScenario, check, invalid};

/// The name of the root.
const ROOT: &str = "root";
/// The most nodes of a scenario.
const MAX_NODES: usize = 100;
/// The most levels, including the root.
const MAX_LEVELS: usize = 8;
/// The most servers of a node.
const MAX_SERVERS: f64 = 9.0;

/// One or several nodes below each node of the level above, in the format of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileNode {
    name: String,
    #[serde(default = "one")]
    count: usize,
    #[serde(default = "one")]
    servers: usize,
    #[serde(default)]
    nodes: Vec<Self>,
}

fn one() -> usize {
    1
}

/// A node of the tree.
#[derive(Debug, Clone)]
pub(crate) struct ScenarioNode {
    pub(crate) name: NodeId,
    /// The name in the file, which several nodes may have in common.
    common_name: String,
    /// The index of the parent, which is less than that of this node; `None` for the root.
    pub(crate) parent: Option<usize>,
    /// The number of its servers.
    pub(crate) servers: usize,
}

/// Reads the nodes, the root first.
pub(super) fn check_nodes(
    root_servers: usize,
    below: &[FileNode],
) -> Result<Vec<ScenarioNode>, InvalidScenario> {
    check("servers.count", root_servers as f64, 1.0..=MAX_SERVERS)?;
    let root = ScenarioNode {
        name: NodeId::new(ROOT).map_err(|error| invalid("nodes", error))?,
        common_name: ROOT.to_owned(),
        parent: None,
        servers: root_servers,
    };
    let mut builder = Builder {
        nodes: vec![root],
        names: BTreeSet::from([ROOT.to_owned()]),
    };
    builder.add_all(below, "nodes", &[0], 2)?;
    Ok(builder.nodes)
}

/// The nodes with a name: one by its own name, or all by a common name.
pub(super) fn find_nodes(
    nodes: &[ScenarioNode],
    name: &str,
    field: &str,
) -> Result<Vec<usize>, InvalidScenario> {
    let has_name = |it: &ScenarioNode| it.name.as_str() == name || it.common_name == name;
    let found = nodes.iter().enumerate().filter(|(_, it)| has_name(it));
    let found: Vec<_> = found.map(|(index, _)| index).collect();
    if found.is_empty() {
        return Err(invalid(field, format!("no node has the name {name:?}")));
    }
    Ok(found)
}

/// The leaves: nodes without others below them.
pub(super) fn leaves(nodes: &[ScenarioNode]) -> Vec<usize> {
    let is_leaf = |node: &usize| nodes.iter().all(|it| it.parent != Some(*node));
    (0..nodes.len()).filter(is_leaf).collect()
}

struct Builder {
    nodes: Vec<ScenarioNode>,
    names: BTreeSet<String>,
}

impl Builder {
    fn add_all(
        &mut self,
        files: &[FileNode],
        field: &str,
        parents: &[usize],
        level: usize,
    ) -> Result<(), InvalidScenario> {
        if level > MAX_LEVELS && !files.is_empty() {
            let message = format!("must be at most {MAX_LEVELS} levels with the root");
            return Err(invalid(field, message));
        }
        for (index, file) in files.iter().enumerate() {
            let field = format!("{field}[{index}]");
            let added = self.add(file, &field, parents)?;
            self.add_all(&file.nodes, &format!("{field}.nodes"), &added, level + 1)?;
        }
        Ok(())
    }

    /// Adds the nodes of an entry below each of the parents, and returns their indices.
    fn add(
        &mut self,
        file: &FileNode,
        field: &str,
        parents: &[usize],
    ) -> Result<Vec<usize>, InvalidScenario> {
        let name = |name: &str| format!("{field}.{name}");
        check(&name("count"), file.count as f64, 1.0..=MAX_NODES as f64)?;
        check(&name("servers"), file.servers as f64, 1.0..=MAX_SERVERS)?;
        let count = parents.len() * file.count;
        let first = self.nodes.len();
        if first + count > MAX_NODES {
            let message = format!("must be at most {MAX_NODES} nodes together with the root");
            return Err(invalid("nodes", message));
        }
        self.use_name(&file.name, &name("name"))?;
        let parents = parents.iter();
        let parents = parents.flat_map(|parent| iter::repeat_n(*parent, file.count));
        for (number, parent) in parents.enumerate() {
            let own_name = if count == 1 {
                file.name.clone()
            } else {
                let own_name = format!("{}-{number}", file.name);
                self.use_name(&own_name, &name("name"))?;
                own_name
            };
            self.nodes.push(ScenarioNode {
                name: NodeId::new(own_name).map_err(|error| invalid(&name("name"), error))?,
                common_name: file.name.clone(),
                parent: Some(parent),
                servers: file.servers,
            });
        }
        Ok((first..first + count).collect())
    }

    fn use_name(&mut self, name: &str, field: &str) -> Result<(), InvalidScenario> {
        if self.names.insert(name.to_owned()) {
            return Ok(());
        }
        Err(invalid(field, format!("{name:?} is used twice")))
    }
}
