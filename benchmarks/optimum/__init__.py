"""Small graphs whose cheapest FP32 set is known, and how near to it tools come."""
