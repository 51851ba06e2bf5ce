//! The fp32 weight on the host, before it is quantised: what `construct` makes and `free_host` drops.
//!
//! Every page is written, as filling a tensor in place does, because that is what an allocation costs.

use rayon::prelude::*;

use super::reference::philox_init::{Purpose, Stream, weight_quad, weight_scale};
use super::spec::{LayerError, Shape};

/// Where a weight comes from: enough to make any element of it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WeightSource {
    /// The shape.
    pub shape: Shape,
    /// The seed of the trial.
    pub seed: u64,
    /// The position of the layer in its sequence.
    pub number: u32,
}

impl WeightSource {
    /// The stream of random words of this weight.
    pub fn stream(self) -> Stream {
        Stream { seed: self.seed, number: self.number, purpose: Purpose::Weight }
    }
}

/// A dense weight of shape (out, in), row-major, uniform in ±1/sqrt(in).
#[derive(Debug)]
pub struct HostWeight {
    /// The generator gives four elements at a time; the last quad may reach past the end.
    quads: Vec<[f32; 4]>,
    source: WeightSource,
}

impl HostWeight {
    /// Allocates and fills the weight on the current rayon pool; the bits do not depend on its size.
    ///
    /// # Errors
    /// If the host does not give the memory.
    pub fn construct(source: WeightSource) -> Result<Self, LayerError> {
        let count = source.shape.elements().div_ceil(4);
        let mut quads: Vec<[f32; 4]> = Vec::new();
        let failed = |_| LayerError::HostMemory { what: "the fp32 weight", bytes: count * 16 };
        quads.try_reserve_exact(count).map_err(failed)?;
        let (stream, scale) = (source.stream(), weight_scale(source.shape.in_features()));
        (0..count)
            .into_par_iter()
            .with_min_len(1 << 12)
            .map(|quad| weight_quad(stream, quad as u64, scale))
            .collect_into_vec(&mut quads);
        Ok(Self { quads, source })
    }

    /// The elements, row-major.
    pub fn as_slice(&self) -> &[f32] {
        &self.quads.as_flattened()[..self.source.shape.elements()]
    }

    /// Where it came from.
    pub fn source(&self) -> WeightSource {
        self.source
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_do_not_depend_on_the_number_of_threads() {
        let source = WeightSource { shape: Shape::new(37, 1001).unwrap(), seed: 7, number: 2 };
        let build = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| HostWeight::construct(source).unwrap())
        };
        let (one, three) = (build(1), build(3));
        assert_eq!(one.as_slice().len(), 37 * 1001);
        assert_eq!(one.as_slice(), three.as_slice());
        let last = one.as_slice().len() - 1;
        let quad = weight_quad(source.stream(), (last / 4) as u64, weight_scale(37));
        assert_eq!(one.as_slice()[last], quad[last % 4]);
    }
}
