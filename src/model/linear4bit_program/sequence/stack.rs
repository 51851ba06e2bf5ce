//! The order of a stack: all layers are built and stay, then each is called in turn.

use super::{Emitter, LayerIndex, LayerStage, Operation, ProgramSink, Role, Sizes};
use crate::model::linear4bit_program::Kernel;

impl<S: ProgramSink> Emitter<'_, S> {
    pub(super) fn stack(&mut self) -> Result<(), S::Error> {
        let memory = self.memory;
        let first = self.next;
        for layer in &memory.sequence {
            self.layer = LayerIndex(self.next);
            self.next += 1;
            self.build(Sizes::of(memory, layer.shape))?;
            // A list holds the layers of a model: no name that moves on lets go of one.
            self.bound = None;
        }
        let feeders = memory.feeders();
        let feeder = |index: u32| feeders[index as usize];
        let mut last_readers: Vec<u32> = (0..self.next).collect();
        for index in first..self.next {
            if let Some(LayerIndex(from)) = feeder(index) {
                last_readers[from as usize] = index;
            }
        }
        let mut live: Vec<u32> = Vec::new();
        for (index, layer) in (first..self.next).zip(&memory.sequence) {
            self.layer = LayerIndex(index);
            self.call_in_chain(Sizes::of(memory, layer.shape), feeder(index))?;
            self.enter(LayerStage::Sync)?;
            self.sink.perform(Operation::Synchronize)?;
            live.push(index);
            let (done, needed) = live.into_iter().partition(|output| last_readers[*output as usize] <= index);
            live = needed;
            let done: Vec<u32> = done;
            done.into_iter().try_for_each(|output| self.free_of(LayerIndex(output), Role::Output))?;
        }
        Ok(())
    }

    /// `y = layer(x)`, where x is the result of the layer `from`, or random if there is none that fits.
    fn call_in_chain(&mut self, sizes: Sizes, from: Option<LayerIndex>) -> Result<(), S::Error> {
        let rows = self.memory.batch.rows();
        let (input, compute) = (self.memory.input, self.memory.compute);
        self.enter(LayerStage::Forward)?;
        if from.is_none() {
            self.alloc(Role::Input, rows * sizes.shape.in_features() * input.bytes())?;
            self.framework(Kernel::Randn)?;
        }
        // What the warm-up left.
        if let Some(before) = self.called.take() {
            self.free_of(before, Role::Input)?;
            self.free_of(before, Role::Output)?;
        }
        self.multiply_in_input_type(sizes, (input, compute))?;
        if from.is_none() { self.free(Role::Input) } else { Ok(()) }
    }
}
