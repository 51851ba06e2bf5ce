//! Activations: a few rows in one of three formats, what goes into a forward call and what comes out.

use half::{bf16, f16};

use super::reference::numbers::Element;
use super::reference::philox_init::{Purpose, Stream, activation};
use crate::model::settings::FloatType;

/// A matrix of `rows` x `width` values, row-major.
#[derive(Debug, Clone, PartialEq)]
pub struct Rows {
    width: usize,
    words: Words,
}

/// The values in their own format.
#[derive(Debug, Clone, PartialEq)]
pub enum Words {
    /// bfloat16.
    Bf16(Vec<bf16>),
    /// IEEE binary16.
    Fp16(Vec<f16>),
    /// IEEE binary32.
    Fp32(Vec<f32>),
}

/// Formats that know their [`Words`] variant.
pub trait IntoWords: Element {
    /// Wraps a vector of this format.
    fn into_words(values: Vec<Self>) -> Words;
}

impl IntoWords for bf16 {
    fn into_words(values: Vec<Self>) -> Words {
        Words::Bf16(values)
    }
}

impl IntoWords for f16 {
    fn into_words(values: Vec<Self>) -> Words {
        Words::Fp16(values)
    }
}

impl IntoWords for f32 {
    fn into_words(values: Vec<Self>) -> Words {
        Words::Fp32(values)
    }
}

impl Rows {
    /// Rows of `width` values; an incomplete last row is dropped.
    ///
    /// # Panics
    /// If `width` is zero.
    pub fn new<T: IntoWords>(width: usize, mut values: Vec<T>) -> Self {
        values.truncate(values.len() / width * width);
        Self { width, words: T::into_words(values) }
    }

    /// `rows` x `width` nearly normal values for layer `number` of a trial, rounded to `format`.
    pub fn random(rows: usize, width: usize, format: FloatType, seed: u64, number: u32) -> Self {
        let stream = Stream { seed, number, purpose: Purpose::Activation };
        let values: Vec<f32> = (0..(rows * width) as u64).map(|i| activation(stream, i)).collect();
        Self::new(width, values).cast(format)
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.len() / self.width
    }

    /// Values per row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The values.
    pub fn words(&self) -> &Words {
        &self.words
    }

    /// The format.
    pub fn format(&self) -> FloatType {
        match &self.words {
            Words::Bf16(_) => FloatType::Bf16,
            Words::Fp16(_) => FloatType::Fp16,
            Words::Fp32(_) => FloatType::Fp32,
        }
    }

    /// The same values in another format, each rounded to nearest even.
    pub fn cast(&self, format: FloatType) -> Self {
        if format == self.format() {
            return self.clone();
        }
        let wide = self.widened();
        match format {
            FloatType::Bf16 => Self::new(self.width, rounded::<bf16>(&wide)),
            FloatType::Fp16 => Self::new(self.width, rounded::<f16>(&wide)),
            FloatType::Fp32 => Self::new(self.width, wide),
        }
    }

    /// One value as f64, exactly.
    ///
    /// # Panics
    /// If there is no such row or column.
    pub fn value(&self, row: usize, column: usize) -> f64 {
        assert!(column < self.width, "column {column} of {}", self.width);
        let at = row * self.width + column;
        f64::from(match &self.words {
            Words::Bf16(values) => values[at].widen(),
            Words::Fp16(values) => values[at].widen(),
            Words::Fp32(values) => values[at],
        })
    }

    /// All values as f32, exactly.
    pub fn widened(&self) -> Vec<f32> {
        match &self.words {
            Words::Bf16(values) => values.iter().map(|value| value.widen()).collect(),
            Words::Fp16(values) => values.iter().map(|value| value.widen()).collect(),
            Words::Fp32(values) => values.clone(),
        }
    }

    fn len(&self) -> usize {
        match &self.words {
            Words::Bf16(values) => values.len(),
            Words::Fp16(values) => values.len(),
            Words::Fp32(values) => values.len(),
        }
    }
}

fn rounded<T: Element>(values: &[f32]) -> Vec<T> {
    values.iter().map(|value| T::round(*value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cast_rounds_once_and_back_changes_nothing() {
        let rows = Rows::random(2, 65, FloatType::Fp32, 3, 0);
        for &format in FloatType::ALL {
            let cast = rows.cast(format);
            assert_eq!((cast.rows(), cast.width(), cast.format()), (2, 65, format));
            assert_eq!(cast.cast(FloatType::Fp32).cast(format), cast);
        }
        assert_ne!(rows.cast(FloatType::Bf16).widened(), rows.widened());
    }

    #[test]
    fn the_same_seed_gives_the_same_rows_and_another_layer_gives_others() {
        let rows = |number| Rows::random(1, 64, FloatType::Bf16, 9, number);
        assert_eq!(rows(0), rows(0));
        assert_ne!(rows(0), rows(1));
    }
}
