//! The fp32 weight on the host, before it is quantised: what `construct` makes and `free_host` drops.
//!
//! Every page is written, as filling a tensor in place does, because that is what an allocation costs.

use rayon::prelude::*;

use super::fast::weights::{PIECE, weight_piece};
use super::os;
use super::reference::philox_init::{Purpose, Stream, weight_scale};
use super::spec::LayerError;
use crate::model::linear4bit_program::Composition;
use crate::model::settings::Shape;

/// How far the weights of a layer spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// Uniform in ±1/sqrt(in), as PyTorch's `Linear` begins: an output has a third of the variance of its input.
    Linear,
    /// Uniform in ±sqrt(3/in): an output has the variance of its input, so that what goes through hundreds of layers
    /// neither vanishes nor overflows.
    Chain,
}

impl From<Composition> for Spread {
    fn from(composition: Composition) -> Self {
        match composition {
            Composition::Sequence => Self::Linear,
            Composition::Stack => Self::Chain,
        }
    }
}

/// Where a weight comes from: enough to make any element of it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WeightSource {
    /// The shape.
    pub shape: Shape,
    /// The seed of the trial.
    pub seed: u64,
    /// The position of the layer in its sequence.
    pub number: u32,
    /// How far its elements spread.
    pub spread: Spread,
}

impl WeightSource {
    /// The stream of random words of this weight.
    pub fn stream(self) -> Stream {
        Stream { seed: self.seed, number: self.number, purpose: Purpose::Weight }
    }

    /// The factor from the integers of the generator to weights.
    pub fn scale(self) -> f32 {
        let linear = weight_scale(self.shape.width());
        match self.spread {
            Spread::Linear => linear,
            Spread::Chain => linear * 3f32.sqrt(),
        }
    }
}

/// Pieces that one task makes at least.
const TASK_PIECES: usize = 1 << 6;

/// Pieces whose pages are asked for at a time: 2 MiB, what one table of the processor maps.
const PAGED_PIECES: usize = (2 << 20) / size_of::<[f32; PIECE]>();

/// A dense weight of shape (out, in), row-major, uniform in the range of its [`Spread`].
#[derive(Debug)]
pub struct HostWeight {
    /// As the generator gives them; the last piece may reach past the end.
    pieces: Vec<[f32; PIECE]>,
    source: WeightSource,
}

impl HostWeight {
    /// Allocates and fills the weight on the current rayon pool; the bits do not depend on its size.
    ///
    /// # Errors
    /// If the host does not give the memory.
    pub fn construct(source: WeightSource) -> Result<Self, LayerError> {
        let count = source.shape.elements().div_ceil(PIECE);
        let mut pieces: Vec<[f32; PIECE]> = Vec::new();
        let bytes = count.saturating_mul(size_of::<[f32; PIECE]>());
        pieces.try_reserve_exact(count).map_err(|_| LayerError::HostMemory { what: "the fp32 weight", bytes })?;
        // Half of the time goes into pages, and threads that take faults side by side wait for each other.
        pieces.spare_capacity_mut()[..count].par_chunks_mut(PAGED_PIECES).for_each(|pages| {
            // What is not brought here comes with the first write.
            os::populate(pages);
        });
        let (stream, scale) = (source.stream(), source.scale());
        (0..count)
            .into_par_iter()
            .with_min_len(TASK_PIECES)
            .map(|piece| weight_piece(stream, piece as u64, scale))
            .collect_into_vec(&mut pieces);
        Ok(Self { pieces, source })
    }

    /// The elements, row-major.
    pub fn as_slice(&self) -> &[f32] {
        &self.pieces.as_flattened()[..self.source.shape.elements()]
    }

    /// Where it came from.
    pub fn source(&self) -> WeightSource {
        self.source
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::reference::philox_init::weight_quad;

    #[test]
    fn the_bits_do_not_depend_on_the_number_of_threads() {
        let source = WeightSource { shape: Shape::new(37, 1001).unwrap(), seed: 7, number: 2, spread: Spread::Linear };
        let build = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| HostWeight::construct(source).unwrap())
        };
        let (one, three) = (build(1), build(3));
        assert_eq!(one.as_slice().len(), 37 * 1001);
        assert_eq!(one.as_slice(), three.as_slice());
        // And they are those of the twin.
        let twin = (0..).flat_map(|quad| weight_quad(source.stream(), quad, weight_scale(37)));
        assert!(one.as_slice().iter().copied().eq(twin.take(37 * 1001)));
    }

    #[test]
    fn a_weight_that_no_host_can_hold_is_an_error() {
        let source = WeightSource {
            shape: Shape::new(Shape::FEATURES_MAX, Shape::FEATURES_MAX).unwrap(),
            seed: 0,
            number: 0,
            spread: Spread::Linear,
        };
        assert!(matches!(HostWeight::construct(source), Err(LayerError::HostMemory { .. })));
    }
}
