//! Profiles: the layers of a model, as a stack repeats them.
//!
//! Owns their form, in files of their own under `matrices/profiles/` and in `[profiles]` of a matrix, and those that are
//! shipped. It knows no workload.

use std::collections::BTreeMap;

use super::axis::LAYERS_MAX;
use super::document::{Node, read};
use super::problem::Problems;
use super::reader::{Reader, array, integer, named, text, within};
use crate::model::ids::is_name;
use crate::model::settings::{Layer, Shape};

/// The most layers of a block, and of a head.
const BLOCK_MAX: usize = 256;

/// The profiles that every matrix may name.
const SHIPPED: [(&str, &str); 4] = [
    ("cosmos-reason2-2b", include_str!("../../../matrices/profiles/cosmos-reason2-2b.toml")),
    ("llama-3.1-8b", include_str!("../../../matrices/profiles/llama-3.1-8b.toml")),
    ("mamba2-7b", include_str!("../../../matrices/profiles/mamba2-7b.toml")),
    ("tiny", include_str!("../../../matrices/profiles/tiny.toml")),
];

/// The linear layers of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// How often the block comes.
    pub layers: u32,
    /// The layers of one block, in the order of a forward pass.
    pub block: Vec<Layer>,
    /// The layers after the last block.
    pub head: Vec<Layer>,
}

/// Profiles by name; `None` is one with a mistake, which is told where it stands.
pub type Profiles = BTreeMap<String, Option<Profile>>;

/// The shipped profiles.
pub(super) fn shipped() -> Profiles {
    let parsed = SHIPPED.iter().map(|(name, source)| {
        let mut problems = Problems::default();
        let root = read(source, 0, &mut problems);
        let profile = read_profile(&root, name, &mut problems);
        assert!(profile.is_some() && !problems.has_errors(), "the shipped profile {name} has a mistake");
        ((*name).to_owned(), profile)
    });
    parsed.collect()
}

/// Reads `[profiles]`, over the shipped ones.
pub(super) fn read_profiles(node: &Node, problems: &mut Problems) -> Profiles {
    let mut profiles = shipped();
    for entry in named(node, "[profiles]", problems) {
        profiles.insert(entry.key.clone(), read_profile(&entry.node, &entry.key, problems));
    }
    profiles
}

fn read_profile(node: &Node, name: &str, problems: &mut Problems) -> Option<Profile> {
    let mut reader = Reader::new(node, format!("profile `{name}`"), problems)?;
    // For people only.
    let _about = reader.take("about").and_then(|node| text(node, problems));
    let _source = reader.take("source").and_then(|node| text(node, problems));
    let layers = reader.take("layers").map(|node| within(node, 1..=LAYERS_MAX, problems));
    let block = reader.require("block", problems);
    let head = reader.take("head");
    reader.finish(problems);
    let block = read_layers(block?, problems)?;
    if block.is_empty() {
        problems.error(node.span, format!("the block of profile `{name}` has no layers")).hint("a model has some");
        return None;
    }
    let head = head.map_or(Some(Vec::new()), |node| read_layers(node, problems))?;
    Some(Profile { layers: layers.unwrap_or(Some(1))?, block, head })
}

fn read_layers(node: &Node, problems: &mut Problems) -> Option<Vec<Layer>> {
    let nodes = array(node, "an array of `{ name = …, in = …, out = … }`", problems)?;
    if nodes.len() > BLOCK_MAX {
        problems.error(node.span, format!("{} layers are more than {BLOCK_MAX}", nodes.len()));
        return None;
    }
    let mut layers: Vec<Layer> = Vec::new();
    for node in nodes {
        let layer = read_layer(node, problems)?;
        if layers.iter().any(|other| other.label == layer.label) {
            problems.error(node.span, format!("layer `{}` is there twice", layer.label));
            return None;
        }
        layers.push(layer);
    }
    Some(layers)
}

fn read_layer(node: &Node, problems: &mut Problems) -> Option<Layer> {
    let mut reader = Reader::new(node, "a layer", problems)?;
    let name_node = reader.require("name", problems);
    let mut side = |key| reader.require(key, problems).and_then(|node| side(node, problems));
    let (in_features, out_features) = (side("in"), side("out"));
    reader.finish(problems);
    let label = text(name_node?, problems)?.to_owned();
    if !is_name(&label) {
        problems
            .error(node.span, format!("`{label}` cannot name a layer"))
            .hint("a name has 1 to 64 of `a-z A-Z 0-9 _ . -` and begins with a letter or a digit");
        return None;
    }
    let shape = Shape::new(in_features?, out_features?);
    shape.map_err(|error| problems.error(node.span, error.to_string())).ok().map(|shape| Layer { label, shape })
}

/// A side of a layer, from 1 on.
fn side(node: &Node, problems: &mut Problems) -> Option<u32> {
    integer(node, 1..=i64::from(Shape::FEATURES_MAX), problems).and_then(|side| u32::try_from(side).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(name: &str) -> u64 {
        let Profile { layers, block, head } = shipped().remove(name).flatten().unwrap();
        let of = |layers: &[Layer]| layers.iter().map(|layer| layer.shape.weights()).sum::<u64>();
        u64::from(layers) * of(&block) + of(&head)
    }

    #[test]
    fn shipped_profiles_have_the_weights_of_their_models() {
        // The published sizes, less embeddings, norms and convolutions: 8.03, 7.29 and about 2 thousand millions.
        assert_eq!(weights("llama-3.1-8b"), 7_504_658_432);
        assert_eq!(weights("mamba2-7b"), 7_147_094_016);
        assert_eq!(weights("cosmos-reason2-2b"), 1_720_451_072);
        assert_eq!(shipped().len(), SHIPPED.len());
    }

    fn said(text: &str) -> String {
        let mut problems = Problems::default();
        let root = read(text, 0, &mut problems);
        let profiles = read_profiles(&root, &mut problems);
        assert!(problems.has_errors(), "{profiles:?}");
        problems.into_sorted().iter().map(|problem| problem.message.clone()).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn a_profile_that_is_none_is_met_with_what_it_lacks() {
        for (text, words) in [
            ("m = { layers = 2 }", "no `block`"),
            ("m = { block = [] }", "has no layers"),
            ("m = { layers = 0, block = [{ name = \"a\", in = 1, out = 1 }] }", "0"),
            ("m = { block = [{ name = \"a\", in = 0, out = 64 }] }", "0"),
            ("m = { block = [{ name = \"a\", in = 64 }] }", "no `out`"),
            ("m = { block = [{ name = \"a\", in = 64, out = 64, bias = true }] }", "unknown key `bias`"),
            ("m = { block = [{ name = \"a b\", in = 64, out = 64 }] }", "cannot name a layer"),
            ("m = { block = [{ name = \"a\", in = 64, out = 64 }, { name = \"a\", in = 64, out = 64 }] }", "twice"),
            ("m = { block = [\"q_proj\"] }", "a layer"),
            ("m = 3", "profile `m`"),
        ] {
            let said = said(text);
            assert!(said.contains(words), "{text}: {said}");
        }
    }
}
