//! The model's file: protobuf by the crate `rten-onnx`, and what that leaves out.

use rten_onnx::onnx::ModelProto;
use rten_onnx::protobuf::{DecodeMessage, Fields, OwnedValues, ProtobufError, ReadValue, ValueReader};

/// A model with what `rten-onnx` does not read of it.
pub(super) struct Model {
    /// What it reads.
    pub(super) model: ModelProto,
    /// What it leaves out.
    pub(super) rest: Rest,
}

impl Model {
    /// Parses a file.
    ///
    /// # Errors
    /// What is wrong with its bytes.
    pub(super) fn parse(bytes: &[u8]) -> Result<Model, String> {
        let wrong = |e: ProtobufError| format!("not an ONNX model: {e}");
        let model = ModelProto::parse_buf(bytes).map_err(wrong)?;
        let rest = Rest::decode(ValueReader::from_buf(bytes)).map_err(wrong)?;
        Ok(Model { model, rest })
    }
}

/// What `rten-onnx` does not read of a model.
#[derive(Default)]
pub(super) struct Rest {
    /// Of its graph.
    pub(super) graph: GraphRest,
    /// Functions of the model's own: their number.
    pub(super) functions: usize,
}

/// What it does not read of a graph.
#[derive(Default)]
pub(super) struct GraphRest {
    /// Of each node.
    pub(super) nodes: Vec<NodeRest>,
    /// Of each initialiser.
    pub(super) initializers: Vec<TensorRest>,
    /// Sparse initialisers: their number.
    pub(super) sparse: usize,
}

/// What it does not read of a node: the tensors of its attributes.
#[derive(Default)]
pub(super) struct NodeRest {
    /// Of each attribute.
    pub(super) attributes: Vec<TensorRest>,
}

/// What it does not read of a tensor.
#[derive(Default, Clone)]
pub(super) struct TensorRest {
    /// `string_data`
    pub(super) texts: Vec<String>,
    /// `uint64_data`
    pub(super) unsigned: Vec<u64>,
}

impl DecodeMessage for Rest {
    type Types = OwnedValues;

    fn decode_fields<R: ReadValue<Types = OwnedValues>>(
        mut fields: Fields<R>,
    ) -> Result<Rest, ProtobufError> {
        let mut rest = Rest::default();
        while let Some(mut field) = fields.next()? {
            match field.number() {
                7 => rest.graph = GraphRest::decode_field(&mut field)?,
                25 => {
                    rest.functions += 1;
                    field.skip()?;
                }
                _ => field.skip()?,
            }
        }
        Ok(rest)
    }
}

impl DecodeMessage for GraphRest {
    type Types = OwnedValues;

    fn decode_fields<R: ReadValue<Types = OwnedValues>>(
        mut fields: Fields<R>,
    ) -> Result<GraphRest, ProtobufError> {
        let mut rest = GraphRest::default();
        while let Some(mut field) = fields.next()? {
            match field.number() {
                1 => rest.nodes.push(NodeRest::decode_field(&mut field)?),
                5 => rest.initializers.push(TensorRest::decode_field(&mut field)?),
                15 => {
                    rest.sparse += 1;
                    field.skip()?;
                }
                _ => field.skip()?,
            }
        }
        Ok(rest)
    }
}

impl DecodeMessage for NodeRest {
    type Types = OwnedValues;

    fn decode_fields<R: ReadValue<Types = OwnedValues>>(
        mut fields: Fields<R>,
    ) -> Result<NodeRest, ProtobufError> {
        let mut rest = NodeRest::default();
        while let Some(mut field) = fields.next()? {
            match field.number() {
                5 => rest.attributes.push(AttributeRest::decode_field(&mut field)?.0),
                _ => field.skip()?,
            }
        }
        Ok(rest)
    }
}

/// Of an attribute.
struct AttributeRest(TensorRest);

impl DecodeMessage for AttributeRest {
    type Types = OwnedValues;

    fn decode_fields<R: ReadValue<Types = OwnedValues>>(
        mut fields: Fields<R>,
    ) -> Result<AttributeRest, ProtobufError> {
        let mut rest = TensorRest::default();
        while let Some(mut field) = fields.next()? {
            match field.number() {
                5 => rest = TensorRest::decode_field(&mut field)?,
                _ => field.skip()?,
            }
        }
        Ok(AttributeRest(rest))
    }
}

impl DecodeMessage for TensorRest {
    type Types = OwnedValues;

    fn decode_fields<R: ReadValue<Types = OwnedValues>>(
        mut fields: Fields<R>,
    ) -> Result<TensorRest, ProtobufError> {
        let mut rest = TensorRest::default();
        while let Some(mut field) = fields.next()? {
            match field.number() {
                6 => rest.texts.push(field.read_string()?),
                11 => {
                    for number in field.read_repeated_uint64()? {
                        rest.unsigned.push(number?);
                    }
                }
                _ => field.skip()?,
            }
        }
        Ok(rest)
    }
}
