"""`jm.view`: a motion as a page for the browser, drawn by a small renderer of its own (WebGL 2).

`stage` collects what a page shows, packed, from the shapes of bodies and the `loads` of joints;
`page` puts it into one file with `page.html`, `style.css`, `renderer.js` and `player.js`.
"""
